//! `tidegate-lab load uac`: offer calls to a server.

use std::io::{IsTerminal, Write, stderr};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tidegate_agent::{
    CallerConfig, ConnectionUse, Load, Process, Profile, Routing, Share, Span, Timing,
};
use tidegate_world::Transport;

use super::arrivals::parse_arrivals;
use super::calls::Calls;
use super::streams::{TlsArgs, parse_transport};
use super::target::{Target, parse_target};
use super::websocket::WebSocketArgs;
use super::{LEAD, parse_millis, parse_seconds, parse_span};
use crate::stage::{parse_address, random_seed, towards};
use tidegate::json;
use tidegate::trouble::Trouble;

/// Offer calls at a given rate, which does not depend on the responses
///
/// The rate may follow a profile over time, and calls may come in bursts or from a trace. A call
/// waits for another call only with --open-limit.
///
/// Exit status: 0 if one or more calls were offered and all of them completed, 1 if not, 2 if the
/// command could not run.
#[derive(clap::Args)]
pub struct Args {
    /// The callee: HOST[:PORT] or sip:USER@HOST[:PORT]
    #[arg(value_parser = parse_target)]
    target: Target,

    /// Calls a second while the factor of --profile is 1. Not allowed with a trace
    #[arg(long, value_name = "R")]
    rate: Option<f64>,

    /// Total number of calls. Not needed with --duration, a trace, or a profile that ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    calls: Option<u32>,

    /// Offer calls for S seconds
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    duration: Option<Duration>,

    /// Pattern of arrivals
    ///
    /// poisson: calls are independent of each other
    /// uniform: times between calls are equal
    /// mmpp:F=S,F=S,…: calls come in bursts. The generator changes at random between 2
    ///   to 8 states. A state lasts S seconds on average, and its rate is proportional
    ///   to F. The mean rate is R
    /// trace:FILE: calls begin at the times in FILE: seconds after the start, one on
    ///   each line, in ascending order. # begins a comment
    #[arg(
        long,
        value_name = "HOW",
        value_parser = parse_arrivals,
        default_value = "poisson",
        verbatim_doc_comment
    )]
    arrivals: Process,

    /// Changes of the rate over time, as factors of R
    ///
    /// constant: 1
    /// gradual:UP,HOLD,DOWN: rises from 0 to 1 in UP seconds, stays at 1 for HOLD
    ///   seconds, falls to 0 in DOWN seconds. No calls after that
    /// instant:AT: 0 before the time AT, 1 from AT on
    /// steps:T=F,T=F,…: F from the time T on. 1 before the first T
    /// flash:AT,PEAK,RISE,DECAY: 1 until AT, rises to PEAK in RISE seconds, then falls
    ///   back to 1 with the time constant DECAY
    /// avalanche:AT,N,WITHIN: 1, with N additional calls in the WITHIN seconds
    ///   after AT
    #[arg(long, value_name = "HOW", default_value_t = Profile::Constant, verbatim_doc_comment)]
    profile: Profile,

    /// Seconds from the answer until the caller hangs up. exp:S draws this time from an exponential
    /// distribution with mean S
    #[arg(long, value_name = "[exp:]S", value_parser = parse_span(parse_seconds), default_value = "0")]
    hold: Span,

    /// Seconds after which the caller cancels a call without an answer. exp:S draws this time from
    /// an exponential distribution with mean S
    #[arg(long, value_name = "[exp:]S", value_parser = parse_span(parse_seconds), default_value = "60")]
    patience: Span,

    /// A call counts as set up in time if it is answered within MS milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "500")]
    deadline: Duration,

    /// Duration of the warm-up in seconds. The report shows four results twice, with and without
    /// the calls of the warm-up: the calls set up in time, the set-up delay, the rejected calls and
    /// the retransmitted INVITEs
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "0")]
    warm_up: Duration,

    /// Duration of the last part of the load, in seconds, that is not measured. It keeps up the
    /// load until the last measured calls are answered. Then the measured set-up delays do not
    /// include calls that are set up only because the load has ended. Needs --duration
    #[arg(
        long,
        value_name = "S",
        value_parser = parse_seconds,
        default_value = "0",
        requires = "duration"
    )]
    cool_down: Duration,

    /// Number of users that call in turn: caller-0, caller-1, …
    #[arg(long, value_name = "N", default_value_t = 1)]
    callers: u32,

    /// Give the users names of 16 different lengths, so that their messages differ in length
    #[arg(long)]
    uneven: bool,

    /// Maximum number of open calls. Further calls do not begin, and the report counts them. The
    /// option -l of SIPp has the same effect, but SIPp does not count these calls
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    open_max: usize,

    /// Closed loop: while N calls are open, a further call waits until one ends. The set-up delay
    /// of a call that waits counts from its intended start
    #[arg(long, value_name = "N")]
    open_limit: Option<usize>,

    /// Send messages up to MS milliseconds late (at most 1), so that the generator wakes up once
    /// for several calls
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "0.2")]
    slack: Duration,

    /// Send ACK and BYE to the target of the INVITE, whatever Record-Route and Contact say
    #[arg(long)]
    no_record_route: bool,

    /// Do not retransmit INVITE, CANCEL and BYE
    #[arg(long)]
    no_retransmissions: bool,

    /// Local address, ADDRESS[:PORT] [default: the address from which this machine sends to the
    /// target]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    bind: Option<SocketAddr>,

    /// Transport of all requests: udp, tcp, tls, ws or wss [default: the transport in the target's
    /// URI, or udp]
    #[arg(long, value_name = "T", value_parser = parse_transport)]
    transport: Option<Transport>,

    /// Connections to the target over TCP, TLS and WebSockets
    ///
    /// N: N connections stay open, and the users (--callers) use them in turn
    /// each: each call opens a connection, and closes it at its end
    #[arg(
        long,
        value_name = "N|each",
        default_value_t = ConnectionUse::default(),
        verbatim_doc_comment
    )]
    connections: ConnectionUse,

    #[command(flatten)]
    tls: TlsArgs,

    #[command(flatten)]
    websocket: WebSocketArgs,

    /// T1 of RFC 3261, in milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "500")]
    t1: Duration,

    /// T2 of RFC 3261, in milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_millis, default_value = "4000")]
    t2: Duration,

    /// Seed of arrivals, identifiers, hold and patience [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write all results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Print progress once a second, even if the output is not a terminal
    #[arg(long)]
    progress: bool,
}

/// Offers the calls, and then prints and writes the results.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let seed = args.seed()?;
    let calls = args.open(Share::WHOLE, seed)?;
    let (start, gauges) = (calls.now() + LEAD, calls.gauges());
    let told = args.progress || stderr().is_terminal();
    let ended = calls.run(start, move || {
        if told {
            let _ = writeln!(anstream::stderr(), "{}", gauges.progress());
        }
    })?;
    let report = &ended.report;
    // A reader that has closed the pipe needs no more output.
    let _ = write!(anstream::stdout(), "{report}");
    if let Some(file) = &args.json {
        let figures = serde_json::to_value(report).map_err(Trouble::failure)?;
        json::write(file, &figures)?;
    }
    let fulfilled = ended.is_complete && report.is_perfect();
    Ok(if fulfilled { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Args {
    /// Returns the seed, or a random one if none is given.
    pub fn seed(&self) -> Result<u64, Trouble> {
        self.seed.map_or_else(random_seed, Ok)
    }

    /// Returns the first given option that applies to a single machine, or `None`. Such an option
    /// cannot be part of a load plan, which is for several machines.
    pub fn local_option(&self) -> Option<&'static str> {
        let given = [
            ("--bind", self.bind.is_some()),
            ("--json", self.json.is_some()),
            ("--progress", self.progress),
        ];
        let given = given.into_iter().find_map(|(option, is_given)| is_given.then_some(option));
        given.or_else(|| self.tls.file_option())
    }

    /// Sets the options that apply to a single machine.
    pub fn set_local(&mut self, bind: Option<SocketAddr>, tls: &TlsArgs) {
        self.bind = bind;
        self.tls = tls.for_plan(&self.tls);
    }

    /// Opens the sockets for the part `share` of the calls.
    pub fn open(&self, share: Share, seed: u64) -> Result<Calls, Trouble> {
        let transport = self.target.transport(self.transport)?;
        let target = self.target.address(transport);
        let bind = match self.bind {
            Some(bind) => bind,
            None => towards(target).map_err(|error| {
                Trouble::usage(format!("no route to the target {target}: {error}"))
            })?,
        };
        let stage = self.websocket.open(&self.tls, &self.target, transport, bind, self.slack)?;
        let config = configure(self, stage.local(), target, load(self)?);
        Calls::new(stage, &CallerConfig { transport, ..config }, share, seed)
    }

    /// Returns the configuration of the calls. Its local address is only a placeholder, because no
    /// socket is open yet.
    ///
    /// # Errors
    /// Returns an error if an option is invalid or missing, or if two options contradict each
    /// other.
    pub fn config(&self) -> Result<CallerConfig, Trouble> {
        let transport = self.target.transport(self.transport)?;
        let target = self.target.address(transport);
        self.websocket.client(&self.target, transport)?;
        Ok(CallerConfig { transport, ..configure(self, target, target, load(self)?) })
    }
}

/// Returns the load that the arguments describe.
fn load(args: &Args) -> Result<Load, Trouble> {
    let load = match (&args.arrivals, args.rate) {
        (Process::Trace(_), Some(_)) => {
            return Err(Trouble::usage("a trace has its own rate: leave out --rate"));
        }
        (Process::Trace(trace), None) => Load::of_trace(trace.clone()),
        (_, None) => return Err(Trouble::usage("--rate R is missing: add it, in calls a second")),
        (process, Some(rate_cps)) => Load { process: process.clone(), rate_cps, ..Load::default() },
    };
    let load = Load {
        profile: args.profile.clone(),
        calls: args.calls.unwrap_or(u32::MAX),
        duration: args.duration.unwrap_or(Duration::MAX),
        ..load
    };
    if load.is_endless() {
        return Err(Trouble::usage("the load has no end: add --calls N or --duration S"));
    }
    Ok(load)
}

fn configure(args: &Args, local: SocketAddr, target: SocketAddr, load: Load) -> CallerConfig {
    CallerConfig {
        connections: args.connections,
        uri: args.target.uri.clone(),
        load,
        callers: args.callers,
        uneven: args.uneven,
        hold: args.hold,
        patience: args.patience,
        deadline: args.deadline,
        warm_up: args.warm_up,
        measured_until: match args.duration {
            Some(duration) if !args.cool_down.is_zero() => duration.saturating_sub(args.cool_down),
            _ => Duration::MAX,
        },
        slack: args.slack,
        timing: Timing { t1: args.t1, t2: args.t2, ..Timing::default() },
        routing: if args.no_record_route { Routing::Ignore } else { Routing::Follow },
        retransmissions: !args.no_retransmissions,
        open_max: args.open_max,
        open_limit: args.open_limit,
        ..CallerConfig::new(local, target)
    }
}
