//! Computes the CPU time that a server spends on sockets for each received and each sent packet.

/// Two values of one run: the number of packets received and sent, and the CPU time that the
/// server's thread spent outside its core. The core is the proxy without sockets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outside {
    pub received: u64,
    pub sent: u64,
    pub ns: f64,
}

/// CPU time that the server spends on sockets for a received and for a sent packet, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PerPacket {
    pub received_ns: f64,
    pub sent_ns: f64,
}

impl PerPacket {
    /// Scales both costs by one factor, so that the costs of all packets of `run` add up to the
    /// time of `run`. The cost of a packet depends on the number of packets that are read together,
    /// and this number differs between runs.
    pub fn at(self, run: Outside) -> Self {
        let explained = self.received_ns * run.received as f64 + self.sent_ns * run.sent as f64;
        let factor = if explained > 0.0 { run.ns / explained } else { 1.0 };
        Self { received_ns: self.received_ns * factor, sent_ns: self.sent_ns * factor }
    }
}

/// Returns the costs of a received and of a sent packet that explain the times of `runs` best: the
/// sum of the squared relative errors of these times is the smallest. Neither cost is negative.
///
/// Returns `None` if the runs do not determine both costs: if fewer than two runs took CPU time, or
/// if sent packets are nearly the same share of all packets in each run.
pub(super) fn fit(runs: &[Outside]) -> Option<PerPacket> {
    // Each run divided by its time: 1 = received_ns · a + sent_ns · b.
    let scaled = runs
        .iter()
        .filter(|run| run.ns > 0.0)
        .map(|run| (run.received as f64 / run.ns, run.sent as f64 / run.ns));
    let (mut aa, mut ab, mut bb, mut a1, mut b1) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (a, b) in scaled {
        aa += a * a;
        ab += a * b;
        bb += b * b;
        a1 += a;
        b1 += b;
    }
    let determinant = aa * bb - ab * ab;
    if determinant <= 1e-6 * aa * bb {
        return None;
    }
    let (received_ns, sent_ns) =
        ((a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant);
    Some(match (received_ns < 0.0, sent_ns < 0.0) {
        (false, false) => PerPacket { received_ns, sent_ns },
        // A cost that would be negative is 0, and the runs determine the other cost.
        (true, _) => PerPacket { received_ns: 0.0, sent_ns: b1 / bb },
        (_, true) => PerPacket { received_ns: a1 / aa, sent_ns: 0.0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(received: u64, sent: u64, ns: f64) -> Outside {
        Outside { received, sent, ns }
    }

    #[test]
    fn two_costs_are_found_from_runs_that_mix_them_differently() {
        let ns = |received: u64, sent: u64| (received * 700 + sent * 2500) as f64;
        let mixes = [(6000, 6000), (4000, 2000), (9000, 10)];
        let runs: Vec<_> = mixes.iter().map(|&(r, s)| run(r, s, ns(r, s))).collect();
        let found = fit(&runs).unwrap();
        assert!((found.received_ns - 700.0).abs() < 1e-6, "{found:?}");
        assert!((found.sent_ns - 2500.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn short_and_long_runs_count_by_their_relative_errors() {
        // The measured time of the long run is 10 % too high. The short runs agree with 1,000 ns
        // for each packet in both directions.
        let runs = [run(10, 0, 10_000.0), run(0, 10, 10_000.0), run(10_000, 10_000, 22_000_000.0)];
        let found = fit(&runs).unwrap();
        assert!((1000.0..1100.0).contains(&found.received_ns), "{found:?}");
    }

    #[test]
    fn no_cost_is_negative() {
        let found = fit(&[run(10, 0, 10_000.0), run(10, 10, 9_000.0)]).unwrap();
        assert_eq!(found.sent_ns, 0.0);
        assert!((900.0..1000.0).contains(&found.received_ns), "{found:?}");
        let found = fit(&[run(0, 10, 10_000.0), run(10, 10, 9_000.0)]).unwrap();
        assert_eq!(found.received_ns, 0.0);
    }

    #[test]
    fn a_run_is_explained_to_the_full() {
        let packet = PerPacket { received_ns: 1000.0, sent_ns: 2000.0 };
        let found = packet.at(run(10, 5, 30_000.0));
        assert_eq!(found, PerPacket { received_ns: 1500.0, sent_ns: 3000.0 });
        assert_eq!(packet.at(run(0, 0, 0.0)), packet);
    }

    #[test]
    fn runs_of_one_mix_determine_nothing() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[run(10, 5, 100.0)]), None);
        assert_eq!(fit(&[run(10, 5, 100.0), run(20, 10, 190.0)]), None);
    }
}
