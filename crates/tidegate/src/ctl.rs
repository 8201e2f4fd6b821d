//! `tidegate ctl`: queries and controls a running Tidegate through its admin interface.

mod client;
mod tables;

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

pub use client::Client;
use tidegate::trouble::Trouble;

/// Show the state of a running Tidegate, and control it
///
/// Exit status: 0 if the command succeeded, 1 if Tidegate does not answer or cannot run the command
/// now, 2 if the command is wrong or Tidegate must be restarted for it.
#[derive(clap::Args)]
pub struct Args {
    /// Address of the admin interface
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8060", global = true)]
    admin: String,

    /// Print JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show the process, its pools and its shards: calls, queues, connections and drops
    Status,
    /// Show every back end: state, calls and limits
    Backends,
    /// Send a back end no new calls. Its present calls continue
    Drain {
        /// Name or address of the back end, as `ctl backends` shows it
        name: String,
    },
    /// Send a back end no new calls and no health checks, for maintenance
    Disable {
        /// Name or address of the back end, as `ctl backends` shows it
        name: String,
    },
    /// Put a drained or disabled back end into service again
    Enable {
        /// Name or address of the back end, as `ctl backends` shows it
        name: String,
    },
    /// Reload the configuration: pools, routes, users, the law and the TLS certificates
    Reload,
    /// Show the overload control law in force, its signals and its decisions
    Overload,
    /// Change the law in force or its parameters, or start a shadow law
    Law(LawArgs),
    /// Show the latest rejections: caller, callee and reason
    Rejections,
    /// Show a call: back end, state, age and source, or the reason why it was rejected
    Call {
        /// The Call-ID of the call
        call_id: String,
    },
    /// Show feedback between servers: the limits that back ends ask for, and the limits that peers
    /// get
    Feedback,
    /// Show the banned sources
    Bans,
    /// End the ban of a source
    Unban {
        /// Address of the source. For IPv6, any address in its /64 network
        address: std::net::IpAddr,
    },
    /// List the keys for the tokens in Record-Route (number, role and age), without secret values
    Keys,
    /// Make a new key for the tokens in Record-Route. Tidegate uses it after `key_settle_s` seconds
    Rotate,
}

#[derive(clap::Args)]
struct LawArgs {
    /// Name of the law (`curl http://127.0.0.1:8060/laws` lists the names). With --shadow, `off`
    /// ends the shadow law
    name: String,

    /// A parameter of the law. May be given several times. The other parameters get their defaults
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
    params: Vec<(String, f64)>,

    /// Start the law as a shadow law. A shadow law only counts its decisions
    #[arg(long)]
    shadow: bool,
}

/// Sends the request of the command, and prints the response.
pub fn run(args: &Args) -> ExitCode {
    match answer(args) {
        Ok(text) => {
            // A reader that has closed the pipe needs no more output.
            let _ = write!(anstream::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        Err(trouble) => trouble.exit("tidegate ctl"),
    }
}

fn answer(args: &Args) -> Result<String, Trouble> {
    let client = Client::new(&args.admin);
    let (value, table): (Value, fn(&Value) -> String) = match &args.command {
        Command::Status => (client.get("/status")?, tables::status),
        Command::Backends => (client.get_member("/status", "pools")?, tables::backends),
        Command::Drain { name } => (client.assign(name, "drain")?, tables::backends),
        Command::Disable { name } => (client.assign(name, "disable")?, tables::backends),
        Command::Enable { name } => (client.assign(name, "enable")?, tables::backends),
        Command::Reload => (client.post("/reload")?, tables::backends),
        Command::Overload => (client.get("/overload")?, tables::overload),
        Command::Law(law) => (client.put("/overload", &law.command())?, tables::in_force),
        Command::Rejections => (client.get("/rejections")?, tables::rejections),
        Command::Call { call_id } => (client.get(&call_path(call_id))?, tables::call),
        Command::Feedback => (client.get_member("/status", "feedback")?, tables::feedback),
        Command::Bans => (client.get("/bans")?, tables::bans),
        Command::Keys => (client.get("/keys")?, tables::keys),
        Command::Rotate => (client.post("/keys/next")?, tables::keys),
        Command::Unban { address } => (client.delete(&format!("/bans/{address}"))?, tables::bans),
    };
    Ok(if args.json { format!("{value:#}\n") } else { table(&value) })
}

impl LawArgs {
    /// Returns the body of the request that installs this law.
    fn command(&self) -> Value {
        let params = self.params.iter().map(|(name, value)| (name.clone(), Value::from(*value)));
        let mut law = json!({ "law": self.name });
        let params: Map<_, _> = params.collect();
        if !params.is_empty() {
            law["params"] = params.into();
        }
        json!({ "overload": if self.shadow { json!({ "shadow": law }) } else { law } })
    }
}

/// Returns the path of a call in the admin interface. Encodes the bytes of the Call-ID that are
/// neither letters nor digits, because a Call-ID may contain any byte.
fn call_path(call_id: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    "/calls/".to_owned() + &call_id.bytes().map(byte).collect::<String>()
}

fn parse_param(text: &str) -> Result<(String, f64), String> {
    let (name, value) =
        text.split_once('=').ok_or("not of the form NAME=VALUE, such as t_q=0.01")?;
    let value: f64 = value.parse().map_err(|_| "the value is not a number".to_owned())?;
    if !value.is_finite() {
        return Err("the value is not a finite number".to_owned());
    }
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_command_uses_the_keys_of_the_configuration() {
        let law = |shadow, params| LawArgs { name: "pi".to_owned(), params, shadow }.command();
        let params = vec![("c_t".to_owned(), 0.8)];
        assert_eq!(law(false, Vec::new()), json!({ "overload": { "law": "pi" } }));
        let with_params = json!({ "law": "pi", "params": { "c_t": 0.8 } });
        assert_eq!(law(false, params.clone()), json!({ "overload": with_params }));
        assert_eq!(law(true, params), json!({ "overload": { "shadow": with_params } }));
    }

    #[test]
    fn any_call_id_can_be_part_of_a_path() {
        assert_eq!(call_path("a1/@x%.."), "/calls/a1%2F%40x%25%2E%2E");
    }

    #[test]
    fn a_parameter_is_a_name_and_a_number() {
        assert_eq!(parse_param("c_t=0.8"), Ok(("c_t".to_owned(), 0.8)));
        for wrong in ["c_t", "c_t=", "c_t=x", "c_t=NaN", "c_t=inf"] {
            assert!(parse_param(wrong).is_err(), "{wrong}");
        }
    }
}
