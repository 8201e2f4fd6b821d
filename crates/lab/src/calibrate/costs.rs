//! Computes the costs of messages from the measurements, and formats the file of costs.

use std::fmt::Write;
use std::time::Duration;

use tidegate_io::Limits;
use tidegate_proxy::Class;
use tidegate_server::config::{Emulate, emulate_toml};
use tidegate_world::Work;

use super::fit::PerPacket;
use super::metered::{Sum, Tally};

/// Pairs of classes. If no run has a message of the first class, this class gets the costs of the
/// second one.
const ALIKE: [(Class, Class); 3] = [
    (Class::InDialog, Class::Bye),
    (Class::Register, Class::Invite),
    (Class::Other, Class::Invite),
];

/// CPU time for a message, by class of message, in µs. `None` stands for a class without messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Prices {
    /// Time to take a packet from its socket. The value is 0 until
    /// [`receiving_for`](Self::receiving_for) sets it. Until then, `offer_us` and `dispose_us`
    /// include this time.
    pub receive_us: f64,
    pub offer_us: [Option<f64>; Work::CLASSES_MAX],
    pub serve_us: [Option<f64>; Work::CLASSES_MAX],
    /// Time to examine a message and reject it.
    pub dispose_us: [Option<f64>; Work::CLASSES_MAX],
}

impl Prices {
    /// Returns the costs of the messages of `tally`, if each packet costs `packet` on sockets. The
    /// time of inputs that are not messages, such as timers, is divided among the served messages.
    pub fn of(tally: &Tally, packet: PerPacket) -> Self {
        let sending = |sum: &Sum| sum.sent_each() * packet.sent_ns;
        let between = tally.rest.ns as f64 / tally.messages_served().max(1) as f64;
        let us = |ns: f64| ns / 1e3;
        let mut prices = Self::default();
        for class in 0..Work::CLASSES_MAX {
            let [offered, served, rejected] =
                [&tally.offered[class], &tally.served[class], &tally.rejected[class]];
            let received =
                |sum: &Sum| sum.mean_ns().map(|mean| us(mean + packet.received_ns + sending(sum)));
            prices.offer_us[class] = received(offered);
            prices.serve_us[class] =
                served.mean_ns().map(|mean| us(mean + between + sending(served)));
            prices.dispose_us[class] = received(rejected);
        }
        prices
    }

    /// Replaces missing values of `self` with those of `other`.
    pub fn or(self, other: &Self) -> Self {
        let or = |mine: [Option<f64>; Work::CLASSES_MAX],
                  theirs: &[Option<f64>; Work::CLASSES_MAX]| {
            std::array::from_fn(|class| mine[class].or(theirs[class]))
        };
        Self {
            receive_us: self.receive_us,
            offer_us: or(self.offer_us, &other.offer_us),
            serve_us: or(self.serve_us, &other.serve_us),
            dispose_us: or(self.dispose_us, &other.dispose_us),
        }
    }

    /// Lowers the costs of examining an INVITE and an ACK, if they are higher than those in
    /// `rejected`, the run in which calls are rejected. There, an INVITE costs the time to examine
    /// and reject it. Examining an admitted message costs more, because the message enters a queue
    /// and causes cache misses. The function adds the difference to the cost of serving the
    /// message, so the sum does not change.
    pub(crate) fn looking_as(self, rejected: &Self) -> Self {
        let looks = [
            (Class::Invite, rejected.dispose_us[Class::Invite as usize]),
            (Class::Ack, rejected.offer_us[Class::Ack as usize]),
        ];
        let mut prices = self;
        for (class, look) in looks {
            let class = class as usize;
            let (Some(offer), Some(serve)) = (prices.offer_us[class], prices.serve_us[class])
            else {
                continue;
            };
            let look = look.map_or(offer, |look| look.min(offer));
            prices.offer_us[class] = Some(look);
            prices.serve_us[class] = Some(serve + offer - look);
        }
        prices
    }

    /// Sets the cost of receiving a message to `us`, in µs, and subtracts it from the costs of
    /// examining a message, and of examining and rejecting it.
    pub(crate) fn receiving_for(self, us: f64) -> Self {
        let apart = |prices: [Option<f64>; Work::CLASSES_MAX]| {
            prices.map(|price| price.map(|price| (price - us).max(0.0)))
        };
        Self {
            receive_us: us,
            offer_us: apart(self.offer_us),
            dispose_us: apart(self.dispose_us),
            ..self
        }
    }

    /// Returns the median of each cost over all rounds. `of` contains the costs of each round.
    pub fn median(of: &[Self]) -> Self {
        let median = |price: fn(&Self, usize) -> Option<f64>| -> [Option<f64>; Work::CLASSES_MAX] {
            std::array::from_fn(|class| {
                let values = of.iter().filter_map(|prices| price(prices, class));
                crate::summary::Spread::of(values).map(|spread| spread.median)
            })
        };
        let receive = crate::summary::Spread::of(of.iter().map(|prices| prices.receive_us));
        Self {
            receive_us: receive.map_or(0.0, |spread| spread.median),
            offer_us: median(|prices, class| prices.offer_us[class]),
            serve_us: median(|prices, class| prices.serve_us[class]),
            dispose_us: median(|prices, class| prices.dispose_us[class]),
        }
    }

    /// Returns the configuration table `[emulate]` with a receive buffer for `socket_max`
    /// datagrams. Classes without messages get the costs of the class that [`ALIKE`] names.
    pub fn emulate(&self, socket_max: usize) -> Emulate {
        let all = |prices: &[Option<f64>; Work::CLASSES_MAX]| {
            std::array::from_fn(|index| {
                let alike = ALIKE.iter().find(|(class, _)| *class as usize == index);
                let price =
                    prices[index].or_else(|| alike.and_then(|(_, of)| prices[*of as usize]));
                Duration::from_nanos((price.unwrap_or(0.0) * 1e3).round() as u64)
            })
        };
        let receive = Duration::from_nanos((self.receive_us * 1e3).round() as u64);
        let offer: [Duration; Work::CLASSES_MAX] = all(&self.offer_us);
        let dispose: [Duration; Work::CLASSES_MAX] = all(&self.dispose_us);
        // The cost of a rejection includes the cost of the examination before it, which is counted
        // separately.
        let reject = std::array::from_fn(|class| dispose[class].saturating_sub(offer[class]));
        let serve = all(&self.serve_us);
        // The numbers of messages that the driver reads in a turn before it serves: from the socket
        // for INVITEs, and from the ordinary socket. With a single queue, all messages come from
        // the ordinary socket.
        let Limits { invites, ordinary, .. } = Limits::default();
        let (batch, batch_fifo) = (Some(invites), Some(ordinary));
        let usual = Emulate::default();
        Emulate { receive, offer, serve, reject, socket_max, batch, batch_fifo, ..usual }
    }
}

/// Formats a file of costs: as comments, `head` and the classes that were not measured, and then
/// the table `[emulate]`.
pub(super) fn file(head: &str, emulate: &Emulate) -> String {
    let mut text = String::new();
    for line in head.lines() {
        let line = format!("# {line}");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for (class, alike) in ALIKE {
        let _ = writeln!(
            text,
            "# {} was not measured: the cost of {} is used.",
            class.name(),
            alike.name()
        );
    }
    text + "\n" + &emulate_toml(emulate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: PerPacket = PerPacket { received_ns: 1000.0, sent_ns: 2000.0 };

    fn tally() -> Tally {
        let mut tally = Tally::default();
        let invite = Class::Invite as usize;
        tally.offered[invite] = Sum { inputs: 10, ns: 5_000, sent: 0 };
        tally.served[invite] = Sum { inputs: 10, ns: 40_000, sent: 20 };
        tally.rejected[invite] = Sum { inputs: 2, ns: 3_000, sent: 2 };
        tally.rest = Sum { inputs: 3, ns: 1_000, sent: 0 };
        tally
    }

    #[test]
    fn a_message_costs_its_time_in_the_core_and_its_packets() {
        let prices = Prices::of(&tally(), PACKET);
        let invite = Class::Invite as usize;
        assert_eq!(prices.offer_us[invite], Some(1.5));
        // The core takes 4 µs, two packets take 2 µs each, and a tenth of the work between messages
        // is added.
        assert_eq!(prices.serve_us[invite], Some(8.1));
        // The core takes 1.5 µs, and one packet comes in and one goes out.
        assert_eq!(prices.dispose_us[invite], Some(4.5));
        assert_eq!(prices.offer_us[Class::Bye as usize], None);
    }

    #[test]
    fn gaps_of_one_sample_are_filled_from_the_other() {
        let mut other = Prices::default();
        other.offer_us[Class::Bye as usize] = Some(7.0);
        other.offer_us[Class::Invite as usize] = Some(7.0);
        let both = Prices::of(&tally(), PACKET).or(&other);
        assert_eq!(both.offer_us[Class::Bye as usize], Some(7.0));
        assert_eq!(both.offer_us[Class::Invite as usize], Some(1.5));
    }

    #[test]
    fn the_cost_of_receiving_is_subtracted_from_offers_and_rejections() {
        let invite = Class::Invite as usize;
        let whole = Prices::of(&tally(), PACKET);
        let apart = whole.clone().receiving_for(1.0);
        assert_eq!((apart.offer_us[invite], apart.dispose_us[invite]), (Some(0.5), Some(3.5)));
        let [whole, apart] = [whole, apart].map(|prices| prices.emulate(1));
        assert_eq!((whole.receive, apart.receive), (Duration::ZERO, Duration::from_micros(1)));
        assert_eq!(whole.offer[invite], apart.receive + apart.offer[invite]);
        assert_eq!(whole.serve, apart.serve);
        assert_eq!(whole.reject, apart.reject);
    }

    #[test]
    fn an_offer_costs_less_when_rejecting_is_part_of_the_service() {
        let [invite, ack] = [Class::Invite as usize, Class::Ack as usize];
        let mut prices = Prices::default();
        for class in [invite, ack] {
            prices.offer_us[class] = Some(5.0);
            prices.serve_us[class] = Some(7.0);
        }
        let mut rejected = Prices::default();
        rejected.dispose_us[invite] = Some(3.0);
        rejected.offer_us[ack] = Some(6.0);
        let looking = prices.clone().looking_as(&rejected);
        assert_eq!((looking.offer_us[invite], looking.serve_us[invite]), (Some(3.0), Some(9.0)));
        assert_eq!((looking.offer_us[ack], looking.serve_us[ack]), (Some(5.0), Some(7.0)));
        assert_eq!(prices.clone().looking_as(&Prices::default()), prices);
    }

    #[test]
    fn every_class_gets_a_cost_and_the_file_is_read_back() {
        let emulate = Prices::of(&tally(), PACKET).emulate(2048);
        for class in [Class::Invite, Class::Register, Class::Other] {
            assert_eq!(emulate.serve[class as usize], Duration::from_nanos(8_100));
            assert_eq!(emulate.reject[class as usize], Duration::from_nanos(3_000));
        }
        let text = file("one\n\ntwo", &emulate);
        assert!(text.starts_with("# one\n#\n# two\n# in_dialog was not measured"), "{text}");
        let read = crate::costs_file::parse(std::path::Path::new("c"), text.as_bytes());
        assert_eq!(read.unwrap(), emulate);
    }

    #[test]
    fn each_price_is_the_median_of_its_samples() {
        let prices = [1.0, 9.0, 2.0].map(|us| {
            let mut prices = Prices::default();
            prices.serve_us[0] = Some(us);
            prices
        });
        assert_eq!(Prices::median(&prices).serve_us[..2], [Some(2.0), None]);
    }
}
