//! `tidegate ctl`: queries and controls a running Tidegate through its admin interface.

mod client;
mod tables;

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

pub use client::Client;
use tidegate::trouble::Trouble;

/// Ask a running Tidegate what it does, and change what it does
///
/// Exit status: 0 done, 1 nobody answers or it cannot be done now, 2 what was asked for is wrong or
/// needs a restart.
#[derive(clap::Args)]
pub struct Args {
    /// Its admin interface
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8060", global = true)]
    admin: String,

    /// As JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show the process and what its shards do
    Status,
    /// Show the back ends of every pool
    Backends,
    /// Give a back end no new calls; it finishes those that it holds
    Drain {
        /// Its name, as `backends` shows it
        name: String,
    },
    /// The same, and what it does meanwhile says nothing of its health: it is not probed
    Disable {
        /// Its name, as `backends` shows it
        name: String,
    },
    /// Give a back end new calls again
    Enable {
        /// Its name, as `backends` shows it
        name: String,
    },
    /// Read the configuration again: pools, routes and laws become what it says
    Reload,
    /// Show the law in force, and what it sees and decides
    Overload,
    /// Put another law in force, or in the shadow of that
    Law(LawArgs),
    /// Show some of the latest rejections: who called whom, and why the call was rejected
    #[command(alias = "refusals")]
    Rejections,
    /// Show a call: its back end, state, age and source, and why it was rejected
    Call {
        /// Its Call-ID
        call_id: String,
    },
    /// Show the sources that are banned
    Bans,
    /// End the ban of a source
    Unban {
        /// Its address; for IPv6, any in its /64 network
        address: std::net::IpAddr,
    },
    /// Show the keys of the tokens in Record-Route, without their secrets
    Keys,
    /// Make the next key, which is put to use once it has settled
    Rotate,
}

#[derive(clap::Args)]
struct LawArgs {
    /// The law, as `tidegate lab list laws` lists it; with --shadow also `off`
    name: String,

    /// A parameter; those not given have their defaults
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
    params: Vec<(String, f64)>,

    /// The law that looks on, and decides nothing
    #[arg(long)]
    shadow: bool,
}

/// Sends the request and prints the response.
pub fn run(args: &Args) -> ExitCode {
    match answer(args) {
        Ok(text) => {
            // If the reader closed the pipe, it has seen what it wanted.
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
        Command::Backends => (client.get("/status")?["pools"].take(), tables::backends),
        Command::Drain { name } => (client.assign(name, "drain")?, tables::backends),
        Command::Disable { name } => (client.assign(name, "disable")?, tables::backends),
        Command::Enable { name } => (client.assign(name, "enable")?, tables::backends),
        Command::Reload => (client.post("/reload")?, tables::backends),
        Command::Overload => (client.get("/overload")?, tables::overload),
        Command::Law(law) => (client.put("/overload", &law.command())?, tables::in_force),
        Command::Rejections => (client.get("/rejections")?, tables::rejections),
        Command::Call { call_id } => (client.get(&call_path(call_id))?, tables::call),
        Command::Bans => (client.get("/bans")?, tables::bans),
        Command::Keys => (client.get("/keys")?, tables::keys),
        Command::Rotate => (client.post("/keys/next")?, tables::keys),
        Command::Unban { address } => (client.delete(&format!("/bans/{address}"))?, tables::bans),
    };
    Ok(if args.json { format!("{value:#}\n") } else { table(&value) })
}

impl LawArgs {
    /// Sends the request of this command to the admin interface.
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

/// Returns the path of the page of a call. A Call-ID may contain any byte.
fn call_path(call_id: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    "/calls/".to_owned() + &call_id.bytes().map(byte).collect::<String>()
}

fn parse_param(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("not of the form NAME=VALUE")?;
    let value: f64 = value.parse().map_err(|_| "its value is not a number".to_owned())?;
    if !value.is_finite() {
        return Err("its value is not a number".to_owned());
    }
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_is_asked_for_in_the_words_of_the_configuration() {
        let law = |shadow, params| LawArgs { name: "pi".to_owned(), params, shadow }.command();
        let params = vec![("c_t".to_owned(), 0.8)];
        assert_eq!(law(false, Vec::new()), json!({ "overload": { "law": "pi" } }));
        let with_params = json!({ "law": "pi", "params": { "c_t": 0.8 } });
        assert_eq!(law(false, params.clone()), json!({ "overload": with_params }));
        assert_eq!(law(true, params), json!({ "overload": { "shadow": with_params } }));
    }

    #[test]
    fn any_call_id_can_stand_in_a_path() {
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
