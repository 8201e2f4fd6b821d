//! `tidegate load`: callers and answerers on real sockets.

mod stage;
mod uac;
mod uas;

use std::fmt::Display;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tidegate_agent::Span;

use crate::WRONG_USE;

/// Call a SIP server, or answer calls, and say how it went
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    side: Side,
}

#[derive(clap::Subcommand)]
enum Side {
    Uac(Box<uac::Args>),
    Uas(Box<uas::Args>),
}

/// Runs one side of the load until its end.
pub fn run(args: Args) -> ExitCode {
    let done = match args.side {
        Side::Uac(args) => uac::run(&args),
        Side::Uas(args) => uas::run(&args),
    };
    done.unwrap_or_else(|trouble| {
        let _ = writeln!(anstream::stderr(), "tidegate load: {}", trouble.what);
        ExitCode::from(trouble.status)
    })
}

/// Why a load could not be run to its end.
struct Trouble {
    what: String,
    status: u8,
}

impl Trouble {
    /// What was asked for cannot be.
    fn usage(what: impl Display) -> Self {
        Self { what: what.to_string(), status: WRONG_USE }
    }

    /// It could be, and went wrong.
    fn failure(what: impl Display) -> Self {
        Self { what: what.to_string(), status: 1 }
    }
}

/// Writes `value` to the file as JSON.
fn write_json(file: &Path, value: &serde_json::Value) -> Result<(), Trouble> {
    let written = File::create(file).and_then(|created| {
        let mut out = BufWriter::new(created);
        serde_json::to_writer_pretty(&mut out, value)?;
        writeln!(out)?;
        out.flush()
    });
    written.map_err(|error| Trouble::failure(format!("{}: {error}", file.display())))
}

/// A seed for a run that names none: another one each time, so that two runs against one
/// server do not bear the same Call-IDs.
fn random_seed() -> Result<u64, Trouble> {
    getrandom::u64().map_err(|error| Trouble::failure(format!("no random seed: {error}")))
}

/// `ADDRESS` or `ADDRESS:PORT`; without a port, any that is free.
fn parse_bind(text: &str) -> Result<SocketAddr, String> {
    let address = text
        .parse()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0)))
        .map_err(|_| "not an address such as 127.0.0.1 or 127.0.0.1:5070".to_owned())?;
    if address.ip().is_unspecified() {
        // Via and Contact name it.
        return Err("a wildcard cannot be called back: name one address".to_owned());
    }
    Ok(address)
}

/// Seconds, with fractions.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Seconds, or `exp:` and the mean of an exponential distribution in seconds.
fn parse_span(text: &str) -> Result<Span, String> {
    match text.strip_prefix("exp:") {
        Some(mean) => parse_seconds(mean).map(Span::Exponential),
        None => parse_seconds(text).map(Span::Fixed),
    }
}

/// As [`parse_span`], in milliseconds.
fn parse_span_millis(text: &str) -> Result<Span, String> {
    match text.strip_prefix("exp:") {
        Some(mean) => parse_millis(mean).map(Span::Exponential),
        None => parse_millis(text).map(Span::Fixed),
    }
}

/// Milliseconds, with fractions.
fn parse_millis(text: &str) -> Result<Duration, String> {
    let millis: f64 = text.parse().map_err(|_| "not a number of milliseconds".to_owned())?;
    Duration::try_from_secs_f64(millis / 1e3).map_err(|error| error.to_string())
}
