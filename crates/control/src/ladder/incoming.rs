//! The messages that arrive, as far as the messages that are read show them.

use super::arrivals::Arrivals;
use super::period::Period;
use super::standing::Standing;
use super::{LOAD_WEIGHT, STEP_MAX_S};

/// Estimates of the rates at which messages arrive, and of the time for which they wait unread.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    /// For each method, the rate of the packets that are not exempt from drops, without
    /// retransmissions.
    pub(super) arrivals: [Arrivals; 2],
    /// Rate of the messages that are exempt from drops or are retransmissions of judged requests.
    pub(super) exempt: Arrivals,
    /// The fraction of the requests for new work that is not exempt from drops, 0 to 1.
    pub(super) subject: f64,
    pub(super) standing: Standing,
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self {
            arrivals: Default::default(),
            exempt: Arrivals::default(),
            subject: 1.0,
            standing: Standing::default(),
        }
    }

    /// Updates the rates with the counts of a period. `fresh_parts` is, for each method, the
    /// fraction of the marks that are fresh.
    pub(super) fn measure(&mut self, period: &Period, fresh_parts: [f64; 2]) {
        let seconds = period.seconds.min(STEP_MAX_S);
        let pace = self.standing.pace(period);
        let read = period.read(pace);
        let all = read + period.filtered + period.overflow;
        let on_streams = period.fresh_on_streams;
        let [invites, registers] = period.fresh_by_method();
        let datagrams = [invites - on_streams[0], registers - on_streams[1]];
        let datagrams = datagrams.map(|count| pace[1] * count.max(0.0));
        let fresh = [0, 1].map(|method| pace[0] * on_streams[method] + datagrams[method]);
        // Only the number of the overflowed datagrams is known. They are assumed to be fresh, and
        // of each method, as often as the datagrams that were read.
        let lost = period.overflow / (pace[1] * period.datagrams).max(1.0);
        for (method, arrivals) in self.arrivals.iter_mut().enumerate() {
            // The method of a packet that was dropped or lost is not known.
            let arrived = (all - fresh[1 - method]).max(0.0);
            // If one packet is sent again and again, its mark tells nothing about other marks.
            let part = fresh_parts[method];
            let count = (fresh[method] + datagrams[method] * lost).min(part * arrived);
            arrivals.record(count * seconds, part, arrived * seconds, seconds);
        }
        let exempt = period.exempt() / period.asked.max(1.0);
        let exempt_count = exempt * read * seconds;
        self.exempt.record(exempt_count, 1.0, exempt_count, seconds);
        self.subject += LOAD_WEIGHT * (1.0 - exempt - self.subject);
    }
}
