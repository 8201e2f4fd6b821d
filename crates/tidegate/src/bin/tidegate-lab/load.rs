//! `tidegate-lab load`: callers, answerers and registering users on real sockets, on one machine or
//! on several.

mod arrivals;
mod calls;
mod follow;
mod lead;
mod plan;
mod progress;
mod protocol;
mod register;
mod streams;
mod target;
mod uac;
mod uas;
mod websocket;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use tidegate::trouble::Trouble;
use tidegate_agent::Span;

/// Generate traffic: call a SIP server, answer calls, or register users, and report the results
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    side: Side,
}

#[derive(clap::Subcommand)]
enum Side {
    Uac(Box<uac::Args>),
    Uas(Box<uas::Args>),
    Register(Box<register::Args>),
    Lead(lead::Args),
    Follow(Box<follow::Args>),
}

/// Runs the traffic generator that `args` selects (callers, callees, registering users, leader or
/// follower) until it ends.
pub fn run(args: Args) -> Result<ExitCode, Trouble> {
    match args.side {
        Side::Uac(args) => uac::run(&args),
        Side::Uas(args) => uas::run(&args),
        Side::Register(args) => register::run(&args),
        Side::Lead(args) => lead::run(&args),
        Side::Follow(args) => follow::run(&args),
    }
}

/// Time between the start of the driver and the first call or registration. The driver needs this
/// time to start.
const LEAD: Duration = Duration::from_millis(20);

/// Parses a number of seconds, which may have a fraction.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Returns a function that parses a fixed time with `parse`, or `exp:` followed by the mean of an
/// exponential distribution.
fn parse_span(
    parse: fn(&str) -> Result<Duration, String>,
) -> impl Fn(&str) -> Result<Span, String> + Clone + Send + Sync {
    move |text| match text.strip_prefix("exp:") {
        Some(mean) => parse(mean).map(Span::Exponential),
        None => parse(text).map(Span::Fixed),
    }
}

/// Parses a number of milliseconds, which may have a fraction.
pub fn parse_millis(text: &str) -> Result<Duration, String> {
    let millis: f64 = text.parse().map_err(|_| "not a number of milliseconds".to_owned())?;
    Duration::try_from_secs_f64(millis / 1e3).map_err(|error| error.to_string())
}
