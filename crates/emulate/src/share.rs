//! Divides the processor time between offering datagrams to a core and serving messages.

use std::time::Duration;

/// Number of offers after which services get a turn, if offers have used more time than services.
/// The real driver takes the same number of INVITEs in a turn.
pub(super) const BURST: u32 = 64;

/// The processor time of offers compared with that of services. A step counts only if both a
/// datagram to offer and a message to serve waited when it began.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Time spent on offers minus time spent on services, in nanoseconds. It becomes negative only
    /// by a service that takes longer than the lead of the offers.
    lead_ns: i64,
    /// Number of offers since `lead_ns` became positive.
    burst: u32,
}

impl Share {
    /// Returns whether the next step must be a service.
    pub(super) fn is_service_due(&self) -> bool {
        self.burst >= BURST
    }

    pub(super) fn offered(&mut self, cost: Duration) {
        self.lead_ns = self.lead_ns.saturating_add(nanos(cost));
        if self.lead_ns > 0 {
            self.burst += 1;
        }
    }

    pub(super) fn served(&mut self, cost: Duration) {
        self.lead_ns = self.lead_ns.saturating_sub(nanos(cost));
        if self.lead_ns <= 0 {
            self.burst = 0;
        }
    }
}

fn nanos(cost: Duration) -> i64 {
    i64::try_from(cost.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kinds of `steps` steps (`o` for an offer, `s` for a service), and the time of
    /// each kind.
    fn steps(steps: usize, offer: u64, serve: u64) -> (String, [u64; 2]) {
        let mut share = Share::default();
        let mut had = [0; 2];
        let mut command = String::new();
        for _ in 0..steps {
            if share.is_service_due() {
                share.served(Duration::from_nanos(serve));
                had[1] += serve;
                command.push('s');
            } else {
                share.offered(Duration::from_nanos(offer));
                had[0] += offer;
                command.push('o');
            }
        }
        (command, had)
    }

    #[test]
    fn with_equal_costs_offers_and_services_alternate_in_bursts() {
        let (command, _) = steps(256, 5, 5);
        let turn = "o".repeat(64) + &"s".repeat(64);
        assert_eq!(command, turn.repeat(2));
    }

    #[test]
    fn offers_and_services_each_get_half_of_the_time_whatever_their_costs() {
        for (offer, serve) in [(1, 1000), (3, 7), (1000, 1)] {
            let (_, [offering, serving]) = steps(1_000_000, offer, serve);
            // The two times differ by a burst of offers or by one service.
            let apart = offering.abs_diff(serving);
            assert!(apart <= (64 * offer).max(serve), "{offer} {serve}: {offering} {serving}");
        }
    }

    #[test]
    fn offers_without_cost_delay_no_service() {
        assert_eq!(steps(1000, 0, 5).0, "o".repeat(1000));
    }
}
