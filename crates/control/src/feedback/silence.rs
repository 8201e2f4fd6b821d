//! Stops sending to a server that does not answer (RFC 7339 §5.9).
//!
//! Signal: consecutive transactions without any response, or with a fatal transport error. Trips:
//! with the third. Recovers: with the first response. Until then, only one request at a time
//! passes, as a probe. The first probe passes after 1 s, and the time doubles with each further
//! probe, up to 30 s. Each time varies by a quarter, so that many clients do not probe together.
//! Cold start: requests are sent. Known bias: a response to a request that was sent before the
//! silence counts as well.

use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

/// The parameters for a server that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilenceSettings {
    /// Consecutive timeouts after which only probes are sent.
    pub timeouts_max: u32,
    /// Time before the first probe. This time and each later one varies by up to a quarter.
    pub probe_min: Duration,
    /// The longest time between two probes, before it is varied.
    pub probe_max: Duration,
}

impl Default for SilenceSettings {
    fn default() -> Self {
        Self {
            timeouts_max: 3,
            probe_min: Duration::from_secs(1),
            probe_max: Duration::from_secs(30),
        }
    }
}

/// The number of consecutive unanswered requests to one server, and the time of its next probe.
#[derive(Debug)]
pub(super) struct Silence {
    settings: SilenceSettings,
    timeouts: u32,
    /// The time between probes, and when the next one is due. `None` while the server answers.
    probing: Option<(Duration, Timestamp)>,
    stream: Stream,
}

impl Silence {
    pub(super) fn new(settings: SilenceSettings, stream: Stream) -> Self {
        Self { settings, timeouts: 0, probing: None, stream }
    }

    /// Returns when the next probe may be sent, or `None` if the server answers.
    pub(super) fn next_probe(&self) -> Option<Timestamp> {
        self.probing.map(|(_, due)| due)
    }

    /// Returns whether a request may be sent as a probe, or `None` if the server answers. If a
    /// probe may be sent, the time until the next probe begins.
    pub(super) fn may_probe(&mut self, now: Timestamp) -> Option<bool> {
        let (wait, due) = self.probing?;
        let is_due = now >= due;
        if is_due {
            self.wait(now, (2 * wait).min(self.settings.probe_max));
        }
        Some(is_due)
    }

    // RFC 7339 §5.9: "In the event of repeated timeouts or fatal transport errors, the SIP client MUST
    // stop sending requests to this server. The SIP client SHOULD periodically probe if the downstream
    // server is alive using any mechanism at its disposal."
    pub(super) fn on_timeout(&mut self, now: Timestamp) {
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts >= self.settings.timeouts_max && self.probing.is_none() {
            self.wait(now, self.settings.probe_min);
        }
    }

    // RFC 7339 §5.9: "Once a SIP client has successfully received a normal response for a request sent
    // to the downstream server, the SIP client can resume sending SIP requests."
    pub(super) fn on_response(&mut self) {
        (self.timeouts, self.probing) = (0, None);
    }

    fn wait(&mut self, now: Timestamp, wait: Duration) {
        let varied = wait.mul_f64(0.75 + 0.5 * self.stream.unit());
        self.probing = Some((wait, now + varied));
    }
}
