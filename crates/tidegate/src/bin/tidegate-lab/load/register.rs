//! `tidegate-lab load register`: register users at a registrar.

use std::io::{IsTerminal, Write, stderr};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::{
    ConnectionUse, Load, Process, Registrant, RegistrantConfig, RegistrantReport, Timing,
};
use tidegate_lab::real::Watched;
use tidegate_server::key::unix_time;
use tidegate_world::{Seed, Transport};

use super::arrivals::parse_arrivals;
use super::progress::{Gauges, Progress};
use super::streams::{TlsArgs, parse_transport};
use super::target::{Target, parse_target};
use super::websocket::WebSocketArgs;
use super::{LEAD, parse_millis, parse_seconds};
use crate::stage::{parse_address, random_seed, towards};
use tidegate::json;
use tidegate::trouble::Trouble;

/// Register users at a given rate, which does not depend on the responses
///
/// The users register in turn. If a user is still waiting for a response when its turn comes, it
/// misses this turn. The report gives the number of missed turns. There is no authentication: a
/// registrar that asks for a password rejects all users (401).
///
/// Exit status: 0 if users registered and every registration was answered with 2xx, 1 if not, 2 if
/// the command could not run.
#[derive(clap::Args)]
pub struct Args {
    /// The registrar: HOST[:PORT], or sip:USER@HOST[:PORT], where USER is the user to register.
    /// With several --users, their names begin with USER
    #[arg(value_parser = parse_target)]
    target: Target,

    /// Registrations a second
    #[arg(long, value_name = "R")]
    rate: f64,

    /// Total number of registrations. Not needed with --duration
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        required_unless_present = "duration"
    )]
    count: Option<u32>,

    /// Register for S seconds
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    duration: Option<Duration>,

    /// Pattern of arrivals, as for `load uac`, but without traces
    #[arg(long, value_name = "HOW", value_parser = parse_arrivals, default_value = "poisson")]
    arrivals: Process,

    /// Number of users, which register in turn. With several users, their names are USER-0, USER-1,
    /// …
    #[arg(long, value_name = "N", default_value_t = 1)]
    users: u32,

    /// Value of Expires in each REGISTER, in seconds
    #[arg(long, value_name = "S", default_value_t = 3600)]
    expires: u32,

    /// A registration counts as in time if it is answered with 2xx within MS milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "500")]
    deadline: Duration,

    /// Duration of the warm-up in seconds. The report shows the response times twice, with and
    /// without the registrations of the warm-up
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "0")]
    warm_up: Duration,

    /// Maximum number of registrations that wait for a response. Further registrations do not
    /// begin, and the report counts them
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    open_max: usize,

    /// Send messages up to MS milliseconds late (at most 1), so that the generator wakes up once
    /// for several messages
    #[arg(long, value_name = "MS", value_parser = parse_slack, default_value = "0.2")]
    slack: Duration,

    /// Transport of all requests: udp, tcp, tls, ws or wss [default: the transport in the target's
    /// URI, or udp]
    #[arg(long, value_name = "T", value_parser = parse_transport)]
    transport: Option<Transport>,

    /// Connections to the registrar over TCP, TLS and WebSockets
    ///
    /// N: N connections stay open, and the users share them in turn
    /// each: each registration opens a connection, and closes it at its end
    #[arg(
        long,
        value_name = "N|each",
        default_value_t = ConnectionUse::default(),
        verbatim_doc_comment
    )]
    connections: ConnectionUse,

    /// Keep the connections open until SIGTERM or SIGINT, with a keep-alive (RFC 5626 §4.4.1) every
    /// S seconds on each. Needs two or more connections (over WebSockets, one is enough)
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    keep_alive: Option<Duration>,

    #[command(flatten)]
    tls: TlsArgs,

    #[command(flatten)]
    websocket: WebSocketArgs,

    /// Local address, ADDRESS[:PORT] [default: the address from which this machine sends to the
    /// registrar]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    bind: Option<SocketAddr>,

    /// T1 of RFC 3261, in milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "500")]
    t1: Duration,

    /// Seed of arrivals and identifiers [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write all results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Print progress once a second, even if the output is not a terminal
    #[arg(long)]
    progress: bool,
}

/// Registers the users, and then prints and writes the results.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    if matches!(args.arrivals, Process::Trace(_)) {
        return Err(Trouble::usage(
            "registrations cannot follow a trace, because --rate sets their rate: give another \
             pattern with --arrivals",
        ));
    }
    let transport = args.target.transport(args.transport)?;
    let target = args.target.address(transport);
    let bind = match args.bind {
        Some(bind) => bind,
        None => towards(target).map_err(|error| {
            Trouble::usage(format!("no route to the registrar {target}: {error}"))
        })?,
    };
    let stage = args.websocket.open(&args.tls, &args.target, transport, bind, args.slack)?;
    let config = RegistrantConfig { transport, ..configure(args, stage.local(), target) };
    let seed = match args.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    let start = stage.now() + LEAD;
    let registrant = Registrant::new(config.clone(), Seed(seed), 0, start, stage.pool())
        .map_err(Trouble::usage)?;
    let gauges = Arc::new(Gauges::default());
    let (shown, mut stop) = (Arc::clone(&gauges), Some(stage.stop()));
    let watched = Watched::new(registrant, move |registrant: &Registrant| {
        let stats = registrant.stats();
        shown.show(Progress {
            offered: stats.offered,
            open: stats.open,
            completed: stats.registered,
            failed: stats.failed.total(),
        });
        // When every registration has ended, the agent ends its run.
        if registrant.is_done()
            && let Some(stop) = stop.take()
        {
            stop.request();
        }
    });
    let told = args.progress || stderr().is_terminal();
    let (run, watched) = stage.run_agent(watched, move || {
        if told {
            let Progress { offered, open, completed, failed } = gauges.progress();
            let _ = writeln!(
                anstream::stderr(),
                "offered {offered}, open {open}, registered {completed}, failed {failed}"
            );
        }
    })?;

    let registrant = watched.into_inner();
    let report = RegistrantReport::new(&config, seed, registrant.stats().clone(), run.usage);
    // A reader that has closed the pipe needs no more output.
    let _ = write!(anstream::stdout(), "{report}");
    if let Some(file) = &args.json {
        let figures = serde_json::to_value(&report).map_err(Trouble::failure)?;
        json::write(file, &figures)?;
    }
    // Only a signal ends a run with keep-alives, and it may come before the last registration.
    let is_complete = !run.interrupted || args.keep_alive.is_some();
    let is_complete = is_complete && registrant.has_offered_all();
    let fulfilled = is_complete && run.drained && report.is_perfect();
    Ok(if fulfilled { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn configure(args: &Args, local: SocketAddr, target: SocketAddr) -> RegistrantConfig {
    RegistrantConfig {
        connections: args.connections,
        keep_alive: args.keep_alive,
        aor: args.target.uri.clone(),
        users: args.users,
        load: Load {
            process: args.arrivals.clone(),
            rate_cps: args.rate,
            calls: args.count.unwrap_or(u32::MAX),
            duration: args.duration.unwrap_or(Duration::MAX),
            ..Load::default()
        },
        first_cseq: first_cseq(),
        expires_s: args.expires,
        deadline: args.deadline,
        warm_up: args.warm_up,
        slack: args.slack,
        timing: Timing { t1: args.t1, ..Timing::default() },
        open_max: args.open_max,
        ..RegistrantConfig::new(local, target)
    }
}

/// Returns a CSeq number that is larger than those of an earlier run with the same seed. This is
/// true if no user registered more often than every two seconds in the earlier run.
// RFC 3261 §8.1.1.5: "A client could, for example, choose the 31 most significant bits of a 32-bit
// second clock as an initial sequence number."
fn first_cseq() -> u32 {
    (unix_time().as_secs() as u32) >> 1
}

/// Parses a number of milliseconds, at most 1.
fn parse_slack(text: &str) -> Result<Duration, String> {
    let slack = parse_millis(text)?;
    if slack > Duration::from_millis(1) { Err("more than 1 ms".to_owned()) } else { Ok(slack) }
}
