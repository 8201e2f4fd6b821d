//! Estimates of the rate, the length and the cost of sessions, from counts of messages.
//!
//! Laws admit sessions, but a queue contains messages. After each interval of length T_m, three
//! values are estimated:
//!
//! - the rate at which sessions are served, μ = N_inv/T_m, where N_inv is the number of admitted
//!   sessions whose service has begun;
//! - the number of messages in a session, L = N_msg/N_inv, where N_msg is the number of all
//!   messages served in that time;
//! - the processor time of a whole session, s: the sum of the service times of these N_msg
//!   messages, divided by N_inv.
//!
//! A queue that contains S messages that begin a session, and M other messages, then holds N = S +
//! M/(L − 1) sessions.
//!
//! This method counts a session when it starts: the *start session check*. The *full session check*
//! counts a session when it ends. All messages of such a session have been served, but most of them
//! perhaps long before, and its last message may bypass this server. The gate does not know to
//! which session a message belongs. So in the full session check, too, L is N_msg divided by the
//! number of counted sessions, not the mean length of these sessions. A message that ends a session
//! counts only while a session is open.
//!
//! All values are smoothed. An interval without a counted session does not change them. Its
//! messages are added to the messages of the next interval, for at most ten intervals. μ starts at
//! a configured rate, and L at 7 (INVITE, 100, 180, 200, ACK, BYE, 200). L is at least 2, and μ has
//! a configured minimum. Otherwise a law could compute a window of 0 calls, admit no call, and
//! never measure another value.
//!
//! Source: paper 002 §3.1, equation 1.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::ewma::Ewma;

/// The parameters of the estimates of the rate, length and cost of sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimation {
    /// The event by which sessions are counted.
    pub check: SessionCheck,
    /// Class of the message that ends a session, or `None` if no class does.
    pub end: Option<u8>,
    /// T_m: the length of an interval.
    pub interval: Duration,
    /// Weight of the newest interval in the smoothed values, above 0 and up to 1.
    pub weight: f64,
    /// Assumed rate of served sessions a second, until it is measured.
    pub rate_cps: f64,
    /// The lower limit of the estimated rate, in sessions a second.
    pub rate_min_cps: f64,
}

/// The event by which sessions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCheck {
    /// The start of the session.
    Start,
    /// The end of the session.
    Full,
}

/// Number of messages in a session until it is measured: a call in paper 002 §3.1 has this many.
const LENGTH: f64 = 7.0;
const LENGTH_MIN: f64 = 2.0;
/// Number of intervals without a counted session after which the counted messages are discarded.
const CARRIED: u32 = 10;

/// The numbers of waiting messages, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Messages that ask for new sessions.
    pub sessions: usize,
    /// Messages that have been read and do not ask for new sessions.
    pub others: usize,
    /// Messages that have not been read, so that their kind is unknown.
    pub unread: usize,
}

/// Estimates of the rate, length and cost of whole sessions.
#[derive(Clone, Debug)]
pub struct Sessions {
    estimation: Estimation,
    begun: Timestamp,
    /// Start of the first interval whose messages are in `count`: they have not changed the
    /// estimates yet.
    carried: Timestamp,
    count: Counts,
    /// Sessions that started and have not ended.
    open: u64,
    rate_cps: Ewma,
    /// Average number of sessions in an interval.
    sessions: Ewma,
    messages: Ewma,
    /// Average number of sessions in an interval, over the intervals in which service times were
    /// known.
    priced: Ewma,
    /// Average sum of the service times in an interval, in seconds, over the same intervals.
    cost_s: Ewma,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sessions: u64,
    messages: u64,
    cost_s: f64,
}

impl Default for Estimation {
    /// Returns parameters that count the starts of sessions, with intervals of 100 ms. The newest
    /// interval has the weight 0.1.
    fn default() -> Self {
        Self {
            check: SessionCheck::Start,
            end: None,
            interval: Duration::from_millis(100),
            weight: 0.1,
            rate_cps: 100.0,
            rate_min_cps: 1.0,
        }
    }
}

impl Sessions {
    pub(crate) fn new(estimation: Estimation) -> Self {
        let Estimation { weight, rate_cps, .. } = estimation;
        let sessions = rate_cps * estimation.interval.as_secs_f64();
        Self {
            estimation,
            begun: Timestamp::ZERO,
            carried: Timestamp::ZERO,
            count: Counts::default(),
            open: 0,
            rate_cps: Ewma::starting_at(rate_cps, weight),
            sessions: Ewma::starting_at(sessions, weight),
            messages: Ewma::starting_at(sessions * LENGTH, weight),
            priced: Ewma::new(weight),
            cost_s: Ewma::new(weight),
        }
    }

    /// Returns μ, the number of sessions served a second. It is at least `rate_min_cps`.
    pub fn rate_cps(&self) -> f64 {
        self.rate_cps.value().max(self.estimation.rate_min_cps)
    }

    /// Returns L, the number of messages in a session. It is at least 2.
    pub fn length(&self) -> f64 {
        let length = self.messages.value() / self.sessions.value();
        if length.is_finite() { length.max(LENGTH_MIN) } else { LENGTH }
    }

    /// Returns s, the time to serve all messages of a session, or `None` until it is measured. The
    /// work of the operating system is not included.
    pub fn cost(&self) -> Option<Duration> {
        let cost_s = self.cost_s.value() / self.priced.value();
        (cost_s > 0.0 && cost_s.is_finite()).then(|| Duration::from_secs_f64(cost_s.min(3600.0)))
    }

    /// Returns N, the number of sessions to which the waiting messages belong. `new` is the share
    /// of the unread messages that is assumed to ask for new sessions, 0 to 1.
    pub fn waiting(&self, backlog: &Backlog, new: f64) -> f64 {
        let Backlog { sessions, others, unread } = *backlog;
        let unread = unread as f64;
        let others = others as f64 + unread * (1.0 - new);
        sessions as f64 + unread * new + others / (self.length() - 1.0)
    }

    /// Records that the service of a message starts. `cost` is the mean service time of its class,
    /// or `None` before the first message of the class. `begins` is true if the message starts a
    /// session.
    pub(crate) fn on_message(&mut self, now: Timestamp, begins: bool, cost: Option<Duration>) {
        self.advance(now);
        self.count.messages += 1;
        self.count.cost_s += cost.unwrap_or_default().as_secs_f64();
        if begins {
            self.open += 1;
            self.count.sessions += u64::from(self.estimation.check == SessionCheck::Start);
        }
    }

    /// Records the class of the message that [`on_message`](Self::on_message) has just recorded.
    pub(crate) fn on_class(&mut self, class: u8) {
        if self.estimation.end == Some(class) && self.open > 0 {
            self.open -= 1;
            self.count.sessions += u64::from(self.estimation.check == SessionCheck::Full);
        }
    }

    fn advance(&mut self, now: Timestamp) {
        let interval = self.estimation.interval;
        let passed = now.since(self.begun);
        if passed < interval {
            return;
        }
        self.begun = now;
        let Counts { sessions, messages, cost_s } = self.count;
        if sessions == 0 {
            if now.since(self.carried) > CARRIED * interval {
                self.count = Counts::default();
                self.carried = now;
            }
            return;
        }
        self.count = Counts::default();
        self.carried = now;
        // After a pause, most of the time that has passed does not belong to the interval.
        let passed_s = passed.min(2 * interval).as_secs_f64();
        self.rate_cps.update(sessions as f64 / passed_s);
        self.sessions.update(sessions as f64);
        self.messages.update(messages as f64);
        if cost_s > 0.0 {
            self.priced.update(sessions as f64);
            self.cost_s.update(cost_s);
        }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new(Estimation::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    const END: u8 = 3;
    const COST: Option<Duration> = Some(Duration::from_micros(100));

    fn estimation(check: SessionCheck) -> Estimation {
        Estimation { check, end: Some(END), ..Estimation::default() }
    }

    /// Starts a call every `every_ms`. A call has `length` messages, and the last one ends it.
    fn calls(sessions: &mut Sessions, from_ms: u64, to_ms: u64, every_ms: u64, length: u32) {
        for ms in (from_ms..to_ms).step_by(every_ms as usize) {
            for i in 0..length {
                sessions.on_message(at(ms), i == 0, COST);
                sessions.on_class(if i + 1 == length { END } else { 0 });
            }
        }
    }

    #[test]
    fn rate_length_and_cost_are_those_of_the_calls_by_either_check() {
        for check in [SessionCheck::Start, SessionCheck::Full] {
            let mut sessions = Sessions::new(estimation(check));
            calls(&mut sessions, 0, 10_000, 5, 9);
            assert!((sessions.rate_cps() / 200.0 - 1.0).abs() < 0.02, "{}", sessions.rate_cps());
            assert!((sessions.length() - 9.0).abs() < 0.1, "{}", sessions.length());
            let cost = sessions.cost().unwrap();
            assert!(cost.abs_diff(Duration::from_micros(900)) < Duration::from_micros(1));
        }
    }

    #[test]
    fn before_anything_is_known_the_engineered_rate_holds() {
        let sessions = Sessions::new(Estimation { rate_cps: 30.0, ..Estimation::default() });
        assert_eq!((sessions.rate_cps(), sessions.length(), sessions.cost()), (30.0, 7.0, None));
        let idle = Sessions::new(Estimation { rate_cps: 0.0, ..Estimation::default() });
        assert_eq!((idle.rate_cps(), idle.length()), (1.0, 7.0));
    }

    // 002, equation 1.
    #[test]
    fn waiting_work_is_counted_in_sessions() {
        let sessions = Sessions::default();
        let backlog = |sessions, others, unread| Backlog { sessions, others, unread };
        assert_eq!(sessions.waiting(&backlog(5, 12, 0), 0.0), 7.0);
        // Half of twelve start sessions, and six are one more.
        assert_eq!(sessions.waiting(&backlog(0, 0, 12), 0.5), 7.0);
    }

    #[test]
    fn an_interval_without_sessions_changes_nothing_and_its_messages_count_for_the_next() {
        let mut sessions = Sessions::new(Estimation { weight: 1.0, ..Estimation::default() });
        calls(&mut sessions, 0, 1000, 10, 7);
        let rate = sessions.rate_cps();
        for ms in (1000..1400).step_by(10) {
            sessions.on_message(at(ms), false, COST);
        }
        assert_eq!(sessions.rate_cps(), rate);
        calls(&mut sessions, 1400, 1500, 10, 7);
        sessions.on_message(at(1500), false, COST);
        // Ten sessions of seven messages, and before them about forty messages that begin no session.
        assert!((10.5..=11.2).contains(&sessions.length()), "{}", sessions.length());
    }

    #[test]
    fn old_arrivals_do_not_count() {
        let mut sessions = Sessions::new(Estimation { weight: 1.0, ..Estimation::default() });
        for ms in (0..60_000).step_by(10) {
            sessions.on_message(at(ms), false, COST);
        }
        calls(&mut sessions, 60_000, 60_101, 10, 7);
        assert!(sessions.length() < 20.0, "{}", sessions.length());
        // Nor does the rest until the next call.
        calls(&mut sessions, 60_101, 60_200, 10, 7);
        calls(&mut sessions, 3_600_000, 3_600_001, 10, 7);
        assert!(sessions.rate_cps() > 40.0, "{}", sessions.rate_cps());
    }

    #[test]
    fn an_end_without_a_beginning_is_no_session() {
        let mut sessions = Sessions::new(estimation(SessionCheck::Full));
        for ms in 0..1000 {
            sessions.on_message(at(ms), false, COST);
            sessions.on_class(END);
        }
        assert_eq!(sessions.rate_cps(), 100.0);
    }

    #[test]
    fn length_is_two_at_least_and_the_rate_has_a_floor() {
        let mut sessions = Sessions::new(Estimation {
            weight: 1.0,
            rate_min_cps: 25.0,
            interval: Duration::from_secs(1),
            ..Estimation::default()
        });
        calls(&mut sessions, 0, 3001, 500, 1);
        assert_eq!((sessions.rate_cps(), sessions.length()), (25.0, 2.0));
    }
}
