//! `tidegate-lab impair`: a relay that loses, delays, reorders and duplicates packets.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Carriage, Link, Relay, RelayCounts, RelaySettings};
use tidegate_world::Seed;

use crate::stage::{Stage, parse_address, random_seed, towards};
use tidegate::trouble::Trouble;

/// Maximum number of clients. The relay sends the packets of each client to the target from a
/// socket of its own.
const CLIENTS_MAX: u64 = 15;

/// Maximum delay and jitter. It is short, so that the packets in transit still arrive when the
/// relay stops.
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Maximum number of packets in transit, of up to 2 KiB each.
const PACKETS_MAX: usize = 65_536;

/// Relay datagrams between a server and its clients like a bad network: with loss, delay,
/// reordering and duplication
///
/// The command runs until SIGTERM or SIGINT, and then prints the counts of datagrams. If an option
/// has one value, it applies to both directions. If an option has two values TOWARDS,BACK, the
/// first applies to datagrams to the target, and the second to datagrams from the target. The relay
/// makes a random decision for each datagram, by the same rules as the simulator. The same seed
/// gives the same sequence of decisions.
#[derive(clap::Args)]
pub struct Args {
    /// Local address to which the clients send, ADDRESS[:PORT]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: SocketAddr,

    /// Address of the server, ADDRESS:PORT
    #[arg(long, value_name = "ADDR")]
    target: SocketAddr,

    /// Share of datagrams that are lost, such as 5%
    #[arg(long, value_name = "P[,P]", default_value = "0%")]
    loss: Ways<Share>,

    /// Delay of each datagram, such as 20ms
    #[arg(long, value_name = "T[,T]", default_value = "0ms")]
    delay: Ways<Time>,

    /// Additional random delay of each datagram, uniform from 0 to T
    #[arg(long, value_name = "T[,T]", default_value = "0ms")]
    jitter: Ways<Time>,

    /// Share of datagrams that are not delayed and so overtake others. Needs --delay
    #[arg(long, value_name = "P[,P]", default_value = "0%")]
    reorder: Ways<Share>,

    /// Share of datagrams that arrive twice
    #[arg(long, value_name = "P[,P]", default_value = "0%")]
    duplicate: Ways<Share>,

    /// Maximum number of clients. A client is an address with a port. The relay drops datagrams of
    /// further clients
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=CLIENTS_MAX))]
    clients: u64,

    /// Seed of the random decisions [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write all counts to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Relays until a signal arrives, then prints the counts of datagrams.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let [link_towards, link_back] = args.links()?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    let back = towards(args.target).map_err(|error| {
        Trouble::usage(format!("no route to the target {}: {error}", args.target))
    })?;
    let mut addresses = vec![args.listen];
    addresses.extend((0..args.clients).map(|_| back));
    let stage = Stage::open(&addresses, Duration::ZERO)?;
    let settings = RelaySettings {
        front: stage.local(),
        backs: stage.locals().split_off(1),
        target: args.target,
        towards: link_towards,
        back: link_back,
        packets_max: PACKETS_MAX,
    };
    let mut relay = Relay::new(settings, Seed(seed));
    // The parent process waits for this line. The line also tells the parent process the port, if
    // it asked for any free port.
    let _ = writeln!(anstream::stdout(), "impairing {} at {}", args.target, stage.local());
    let run = stage.run(&mut relay, || {})?;

    let counts = *relay.counts();
    let _ = write!(anstream::stdout(), "{}", table(&counts));
    if let Some(file) = &args.json {
        let mut figures = json!(counts);
        figures["seed"] = json!(seed);
        figures["usage"] = json!(run.usage);
        tidegate::json::write(file, &figures)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn links(&self) -> Result<[Link; 2], Trouble> {
        let Self { loss, delay, jitter, reorder, duplicate, .. } = self;
        let link = |way: usize| Link {
            delay: delay.0[way].0,
            jitter: jitter.0[way].0,
            loss: loss.0[way].0,
            reorder: reorder.0[way].0,
            duplicate: duplicate.0[way].0,
            ..Link::default()
        };
        let links = [link(0), link(1)];
        if links.iter().any(|link| link.reorder > 0.0 && link.delay.is_zero()) {
            return Err(Trouble::usage(
                "--reorder needs --delay: without a delay no datagram can overtake another",
            ));
        }
        Ok(links)
    }
}

fn table(counts: &RelayCounts) -> String {
    let mut text = format!(
        "{:<8}{:>9}{:>8}{:>9}{:>9}{:>11}{:>9}\n",
        "", "received", "lost", "doubled", "overtook", "overflowed", "sent"
    );
    for (name, way) in [("towards", counts.towards), ("back", counts.back)] {
        let Carriage { received, lost, duplicated, overtook, overflowed, sent } = way;
        text += &format!(
            "{name:<8}{received:>9}{lost:>8}{duplicated:>9}{overtook:>9}{overflowed:>11}{sent:>9}\n"
        );
    }
    let RelayCounts { clients, no_room, strays, late, undelivered, .. } = counts;
    text += &format!(
        "clients {clients}; dropped datagrams: {no_room} because there were already --clients \
         clients, {strays} because they belong to no client, {late} because the relay was stopping; \
         {undelivered} sent datagrams could not be delivered\n"
    );
    text
}

/// One value for both directions, or one for each.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ways<T>([T; 2]);

/// Fraction from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share(f64);

/// Time of at most [`DELAY_MAX`].
#[derive(Clone, Copy, Debug, PartialEq)]
struct Time(Duration);

impl<T: FromStr<Err = String> + Copy> FromStr for Ways<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (towards, back) = text.split_once(',').unwrap_or((text, text));
        Ok(Self([towards.parse()?, back.parse()?]))
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let percent = percent.ok_or("not a percentage such as 5%")?;
        if !(0.0..=100.0).contains(&percent) {
            return Err("not between 0% and 100%".to_owned());
        }
        Ok(Self(percent / 100.0))
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "not a time such as 20ms or 0.5s";
        let (number, unit_s) = match text.strip_suffix("ms") {
            Some(number) => (number, 1e-3),
            None => (text.strip_suffix('s').ok_or(wanted)?, 1.0),
        };
        let number: f64 = number.parse().map_err(|_| wanted)?;
        let time = Duration::try_from_secs_f64(number * unit_s).map_err(|_| wanted)?;
        if time > DELAY_MAX {
            return Err(format!("longer than {} s", DELAY_MAX.as_secs()));
        }
        Ok(Self(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_one_value_for_both_directions_or_one_for_each() {
        assert_eq!("5%".parse(), Ok(Ways([Share(0.05); 2])));
        let ms = |ms| Time(Duration::from_millis(ms));
        assert_eq!("20ms,0.5s".parse(), Ok(Ways([ms(20), ms(500)])));
    }

    #[test]
    fn invalid_shares_and_times_are_rejected() {
        for text in ["5", "", "%", "101%", "-1%", "NaN%", "1%,", "1%,2%,3%"] {
            assert!(text.parse::<Ways<Share>>().is_err(), "{text}");
        }
        for text in ["20", "ms", "-1ms", "2.1s", "infs", "1ms,2"] {
            assert!(text.parse::<Ways<Time>>().is_err(), "{text}");
        }
    }
}
