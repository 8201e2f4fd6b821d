//! Registrations that were answered with 2xx, and the expiry times that the registrar has granted.

use std::net::SocketAddr;

use tidegate_sip::{Host, Message, NameAddr};
use tidegate_world::{Received, Timestamp};

use super::Registrant;

impl Registrant {
    pub(super) fn on_registered(&mut self, intended: Timestamp, received: &Received) {
        let delay = received.arrived.since(intended);
        let in_time = u64::from(delay <= self.config.deadline);
        self.stats.registered += 1;
        self.stats.registered_in_time += in_time;
        self.stats.delay.record(delay);
        if self.is_measured(intended) {
            let measured = &mut self.stats.measured;
            measured.registered += 1;
            measured.registered_in_time += in_time;
            measured.delay.record(delay);
        }
        let granted = Message::parse(&received.bytes).ok().and_then(|m| self.granted(&m));
        match granted {
            Some(seconds) => self.stats.granted(seconds),
            None => self.stats.granted_unknown += 1,
        }
    }

    /// Returns the expiry that a response grants to the binding of the registrant, in seconds, or
    /// `None` if the response does not state it.
    // RFC 3261 §10.2.4: "If so, it updates the expiration time interval according to the expires parameter
    // or, if absent, the Expires field value."
    fn granted(&self, response: &Message<'_>) -> Option<u32> {
        let is_ours = |contact: &NameAddr<'_>| {
            let uri = contact.parse_uri().ok()?;
            Some(match uri.host? {
                Host::Name(name) => name.eq_ignore_ascii_case(self.host.as_bytes()),
                host => SocketAddr::new(host.ip()?, uri.port_or_default()) == self.config.local,
            })
        };
        let ours = response.contacts().flatten().find(|contact| is_ours(contact) == Some(true));
        let seconds = ours.and_then(|contact| contact.params.value("expires"));
        let seconds = seconds.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        seconds.or_else(|| response.expires().ok().flatten())
    }
}
