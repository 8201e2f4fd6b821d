//! `tidegate-lab load follow`: generate traffic for a leader.

mod entrance;
mod session;

use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;

use crossbeam_channel::select;
use tidegate_server::signal::Signals;

use super::protocol::printable;
use super::streams::TlsArgs;
use crate::stage::parse_address;
use entrance::{Busy, Entrance};
use session::{Local, Outcome, Session};
use tidegate::trouble::Trouble;

/// The default port of a follower. The followers of paper 000 §4.3 listen at this port too.
pub const PORT: u16 = 30045;

/// Maximum number of addresses that may send load plans.
const FROM_MAX: usize = 64;

/// Generate traffic on this machine for a leader (`load lead`) on another machine
///
/// The leader sends a load plan: a command, and the follower's part of the load. The follower
/// offers this part at the same time as the other followers, sends the results to the leader, and
/// waits for the next load plan. SIGTERM or SIGINT ends the follower. If the follower loses the
/// leader, it stops the calls.
///
/// A load plan can make this machine send traffic to any address. So the follower accepts load
/// plans only from this machine, unless --from names other addresses. The connection is neither
/// encrypted nor authenticated, so use it only in networks that you trust.
///
/// Exit status: 0 after a signal. With --once: 0 if the load plan was carried out to its end, 1 if
/// not. Also 1 if the follower can accept no more connections. 2 if the command could not run.
#[derive(clap::Args)]
pub struct Args {
    /// Local address to which leaders connect, ADDRESS[:PORT]
    #[arg(
        long,
        value_name = "ADDR",
        value_parser = parse_listen,
        default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))
    )]
    listen: SocketAddr,

    /// Addresses of leaders from which the follower accepts load plans (commands with a part of the
    /// load), separated by commas [default: the loopback addresses of this machine]
    #[arg(long, value_name = "IP,…", value_delimiter = ',')]
    from: Vec<IpAddr>,

    /// Local address of the traffic, ADDRESS[:PORT] [default: the address from which this machine
    /// sends to the target]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    bind: Option<SocketAddr>,

    #[command(flatten)]
    tls: TlsArgs,

    /// Exit after one load plan, instead of waiting for the next
    #[arg(long)]
    once: bool,
}

/// Carries out the load plans of leaders, one after the other, until a signal arrives. With
/// `--once`, carries out one load plan.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    if args.from.len() > FROM_MAX {
        return Err(Trouble::usage(format!("--from has more than {FROM_MAX} addresses")));
    }
    let signals = Signals::catch_stops().map_err(Trouble::uncaught_signals)?;
    let wrong =
        |error: io::Error| Trouble::usage(format!("cannot listen on {}: {error}", args.listen));
    let listener = TcpListener::bind(args.listen).map_err(wrong)?;
    let address = listener.local_addr().map_err(wrong)?;
    let from = Allowed(args.from.iter().map(IpAddr::to_canonical).collect());
    // The parent process waits for this line. The line also tells the parent process the port, if
    // it asked for any free port.
    tell(format_args!("waiting at {address} for load plans from {from}"));
    let busy = Busy::default();
    let leaders = Entrance::open(listener, from, busy.clone()).map_err(Trouble::failure)?;
    let local = Local { bind: args.bind, tls: args.tls.clone() };
    loop {
        // A signal may have come while the follower made calls.
        if signals.stops().try_recv().is_ok() {
            return Ok(ExitCode::SUCCESS);
        }
        let stream = select! {
            recv(leaders) -> stream => match stream {
                Ok(stream) => stream,
                Err(_) => {
                    let what = "cannot accept connections any longer; start the follower again";
                    return Err(Trouble::failure(what));
                }
            },
            recv(signals.stops()) -> _ => return Ok(ExitCode::SUCCESS),
        };
        let outcome = Session::new(stream, &local, &busy, signals.stops())
            .map_or_else(|error| Outcome::NoPlan(error.to_string()), Session::run);
        tell(format_args!("{}", printable(&outcome.to_string())));
        match outcome {
            Outcome::Stopped => return Ok(ExitCode::SUCCESS),
            Outcome::Done { is_complete } if args.once => {
                return Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Outcome::Failed(_) if args.once => return Ok(ExitCode::FAILURE),
            Outcome::Done { .. } | Outcome::Failed(_) | Outcome::NoPlan(_) => {}
        }
    }
}

/// Prints a line. A reader that has closed the pipe needs no more output.
fn tell(line: fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stdout(), "{line}");
}

/// Parses `ADDRESS` or `ADDRESS:PORT`. A wildcard address is possible.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let ip = || text.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
    text.parse()
        .or_else(|_| ip())
        .map_err(|_| format!("not an address such as 127.0.0.1 or 127.0.0.1:{PORT}"))
}

/// The addresses that may send load plans. If the list is empty, only this machine may send them.
struct Allowed(Vec<IpAddr>);

impl Allowed {
    fn contains(&self, peer: IpAddr) -> bool {
        // A listener at [::] sees addresses of IPv4 in their IPv6 form.
        let peer = peer.to_canonical();
        if self.0.is_empty() { peer.is_loopback() } else { self.0.contains(&peer) }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("this machine only");
        }
        let mut separator = "";
        for ip in &self.0 {
            write!(f, "{separator}{ip}")?;
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_machines_may_send_plans() {
        let from =
            |addresses: &[&str]| Allowed(addresses.iter().map(|ip| ip.parse().unwrap()).collect());
        let may = |from: &Allowed, ip: &str| from.contains(ip.parse().unwrap());
        let own = from(&[]);
        assert!(may(&own, "127.0.0.1") && may(&own, "127.9.8.7") && may(&own, "::1"));
        assert!(may(&own, "::ffff:127.0.0.1") && !may(&own, "10.0.0.1") && !may(&own, "2001::1"));
        let named = from(&["10.0.0.1", "2001::1"]);
        assert!(may(&named, "10.0.0.1") && may(&named, "2001::1"));
        assert!(may(&named, "::ffff:10.0.0.1"));
        assert!(!may(&named, "10.0.0.2") && !may(&named, "127.0.0.1"));
    }

    #[test]
    fn the_port_of_a_follower_may_be_left_out() {
        assert_eq!(parse_listen("127.0.0.1"), Ok(([127, 0, 0, 1], PORT).into()));
        assert_eq!(parse_listen("0.0.0.0:7"), Ok(([0, 0, 0, 0], 7).into()));
        assert_eq!(parse_listen("[::1]:7"), Ok("[::1]:7".parse().unwrap()));
        assert!(parse_listen("localhost").is_err());
    }
}
