//! `tidegate-lab load uas`: answer calls.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, Behaviour, Mix, Span, Timing};
use tidegate_world::{Seed, Transport};

use super::streams::{TlsArgs, parse_transport};
use super::{parse_millis, parse_seconds, parse_span};
use crate::number::number_in;
use crate::stage::{parse_address, random_seed};
use tidegate::json;
use tidegate::trouble::Trouble;

/// The number of this agent. Each agent draws its random values, such as holding times, from the
/// seed and its own number. Callers have the numbers 0, 1, 2 and so on. This number is larger than
/// any of them, so a callee with the same seed as its caller draws different values.
const ELEMENT: u32 = 1 << 30;

/// Answer calls until SIGTERM or SIGINT, and then print the results
#[derive(clap::Args)]
pub struct Args {
    /// Local address, ADDRESS[:PORT]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    bind: SocketAddr,

    /// Transport of the calls: udp, tcp, tls, ws or wss
    #[arg(long, value_name = "T", value_parser = parse_transport, default_value = "udp")]
    transport: Transport,

    /// Answer at every address of this machine, at the port of --bind, like many servers. The
    /// Contact is always the address of --bind
    #[arg(long)]
    all_addresses: bool,

    /// Milliseconds for which a call rings: from the INVITE to its final response. exp:MS draws
    /// this time from an exponential distribution with mean MS
    #[arg(long, value_name = "[exp:]MS", value_parser = parse_span(parse_millis), default_value = "0")]
    ring: Span,

    /// Provisional responses while a call rings, such as 183,180: the first at once, the others at
    /// equal intervals
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(101..200),
        default_value = "180"
    )]
    provisionals: Vec<u16>,

    /// Send no provisional response, except a 100 if the final response comes late
    #[arg(long, conflicts_with = "provisionals")]
    no_ringing: bool,

    /// Send a 100 as the first response
    #[arg(long)]
    trying: bool,

    /// Outcomes of calls with their weights: answer, busy (486), ring (until the caller gives up),
    /// silent (no response), or a final status, such as answer=70,busy=15,ring=10,503=4,silent=1.
    /// Each call gets a random outcome
    #[arg(long, value_name = "WHAT=W,…")]
    outcomes: Option<Mix>,

    /// Reject all calls with this status
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(300..700),
        conflicts_with = "outcomes"
    )]
    status: Option<u16>,

    /// Send no responses, and count requests instead of calls
    #[arg(long, conflicts_with_all = ["status", "outcomes"])]
    silent: bool,

    /// Answer every request but ACK with 200 at once, and keep no state. No server can do less, so
    /// this is the lowest cost with which to compare other servers
    #[arg(long, conflicts_with_all = ["status", "outcomes", "silent", "trying"])]
    echo: bool,

    /// Share of answered calls that the callee ends with a BYE, from 0 to 1. The callers end the
    /// other calls
    #[arg(long, value_name = "P", value_parser = number_in(0.0..=1.0), default_value = "0")]
    hang_up: f64,

    /// Seconds from the ACK until the callee hangs up, in the calls that it ends. exp:S draws this
    /// time from an exponential distribution with mean S
    #[arg(long, value_name = "[exp:]S", value_parser = parse_span(parse_seconds), default_value = "0")]
    hold: Span,

    /// A call counts as acknowledged in time if its ACK arrives within MS milliseconds after its
    /// INVITE
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "10000")]
    deadline: Duration,

    /// Do not retransmit final responses and BYEs
    #[arg(long)]
    no_retransmissions: bool,

    /// User part of the Contact, and beginning of each To-tag. It shows which server answered
    #[arg(long, default_value = "answerer")]
    name: String,

    /// Maximum number of calls in the table, including calls that ended less than 64·T1 ago
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    calls_max: usize,

    /// Answer up to MS milliseconds late (at most 0.5), so that the server wakes up once for
    /// several calls
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "0.2")]
    slack: Duration,

    #[command(flatten)]
    tls: TlsArgs,

    /// T1 of RFC 3261, in milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "500")]
    t1: Duration,

    /// Seed of identifiers and outcomes [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write all results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Answers until a signal arrives, and then prints and writes the counts.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    if args.t1.is_zero() {
        return Err(Trouble::usage("T1 (--t1) must be above 0 ms"));
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    let stage = args.tls.open(args.transport, bound(args), None, args.slack)?;
    let local = SocketAddr::new(args.bind.ip(), stage.local().port());
    let mix = match (&args.outcomes, args.status) {
        (Some(mix), _) => mix.clone(),
        (None, Some(status)) => Behaviour::Reject(status).into(),
        (None, None) if args.silent => Behaviour::Silent.into(),
        (None, None) => Behaviour::Answer.into(),
    };
    let config = AnswererConfig {
        transport: args.transport,
        echo: args.echo,
        name: args.name.clone(),
        mix,
        provisionals: if args.no_ringing { Vec::new() } else { args.provisionals.clone() },
        trying: args.trying,
        ring: args.ring,
        hangs_up: args.hang_up,
        hold: args.hold,
        deadline: args.deadline,
        retransmissions: !args.no_retransmissions,
        timing: Timing { t1: args.t1, ..Timing::default() },
        calls_max: args.calls_max,
        ..AnswererConfig::new(local)
    };
    let answerer = Answerer::new(config, Seed(seed), ELEMENT, stage.pool());
    // The parent process waits for this line. The line also tells the parent process the port, if
    // it asked for any free port.
    let _ = writeln!(anstream::stdout(), "answering at {local}");
    let (run, answerer) = stage.run_agent(answerer, || {})?;

    let stats = answerer.stats();
    // An echo counts requests, because it has no calls.
    let (count, what) = if args.echo { (stats.others, "request") } else { (stats.calls, "call") };
    let us_each = (count > 0).then(|| run.usage.cpu_s * 1e6 / count as f64);
    let each = us_each.map(|us| format!(", {us:.1} µs a {what}")).unwrap_or_default();
    let streams = run.usage.streams.map(|streams| streams.to_string()).unwrap_or_default();
    let _ = writeln!(
        anstream::stdout(),
        "{stats}{streams}{:<16}CPU {:.2} s of {:.2} s{each}; datagrams lost at full receive buffers \
         {}, not sent {}",
        "own cost",
        run.usage.cpu_s,
        run.usage.wall_s,
        run.usage.socket_drops,
        run.usage.send_drops
    );
    if let Some(file) = &args.json {
        json::write(
            file,
            &serde_json::json!({
                "name": args.name,
                "seed": seed,
                "stats": stats,
                "usage": run.usage,
                "cpu_us_per_call": us_each.filter(|_| !args.echo),
            }),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the address to bind. With `--all-addresses`, this is the wildcard address, and each
/// request is answered from the address at which it arrived.
fn bound(args: &Args) -> SocketAddr {
    let any: IpAddr = match args.bind {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    if args.all_addresses { SocketAddr::new(any, args.bind.port()) } else { args.bind }
}
