//! A probe that was sent: its request and its result.

use std::io::{self, Write};
use std::net::SocketAddr;

use tidegate_transaction::OtherClient;
use tidegate_world::{Buffer, Timestamp};

use crate::backends::health::{cap_exclusions, pause_of, spare};
use crate::message::probe_branch::ProbeBranch;
use crate::pushback::next_hops::Obedience;
use crate::pushback::wire::OverloadOffer;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;

/// A probe that was sent and has no final response yet.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    pub(super) number: u32,
    pub(super) address: SocketAddr,
    pub(super) client: OtherClient,
    pub(super) until: Timestamp,
    /// True if this is a regular probe, so that the status of the response decides whether the
    /// probe has succeeded. Any response to an immediate probe shows that the back end is alive.
    pub(super) is_regular: bool,
    /// The time since which the back end is suspect. `None` for a regular probe, unless it also
    /// serves as an immediate probe.
    pub(super) suspect_since: Option<Timestamp>,
    /// Random values for the Call-ID and the From-tag of the probe.
    pub(super) drawn: [u64; 2],
}

impl Flight {
    /// Returns the time of the next retransmission or of the end of the probe.
    pub(super) fn deadline(&self) -> Timestamp {
        self.client.deadline().map_or(self.until, |deadline| deadline.min(self.until))
    }

    /// Writes the OPTIONS request of this probe. The Request-URI names the back end itself.
    ///
    /// RFC 3261 §11.1: "An OPTIONS request is constructed using the standard rules for a SIP request
    /// as discussed in Section 8.1.1."
    pub(super) fn write(
        &self,
        snapshot: &Snapshot,
        place: usize,
        backend_ref: BackendRef,
        egress: usize,
        bytes: &mut Buffer,
    ) -> io::Result<()> {
        let own = snapshot.addresses.listener(egress).ok_or(io::ErrorKind::NotFound)?;
        let branch =
            ProbeBranch { shard: snapshot.shard as u8, place: place as u32, number: self.number };
        let address = self.address;
        let branch = branch.encode(&snapshot.keys, address);
        let [call, tag] = self.drawn;
        let host = &own.advertised;
        write!(bytes, "OPTIONS sip:{address} SIP/2.0\r\n{}", own.via)?;
        bytes.write_all(branch.as_bytes())?;
        // RFC 7339 §5.1 asks for "the "oc" parameter without any value" and "the "oc-algo" parameter
        // with a list of algorithms it supports" at the first contact with a server.
        if snapshot.obedience_to(backend_ref) != Obedience::Never {
            bytes.write_all(&snapshot.next_hops.offer_text(OverloadOffer::Algorithms))?;
        }
        let probe = snapshot.pool(backend_ref.pool).health.probe.as_ref();
        match probe.and_then(|probe| probe.from.as_deref()) {
            Some(from) => write!(bytes, "\r\nMax-Forwards: 70\r\nFrom: <{from}>;tag={tag:016x}"),
            None => {
                write!(bytes, "\r\nMax-Forwards: 70\r\nFrom: <sip:tidegate@{host}>;tag={tag:016x}")
            }
        }?;
        write!(
            bytes,
            "\r\nTo: <sip:{address}>\r\nCall-ID: {call:016x}@{host}\r\nCSeq: 1 OPTIONS\r\n\
             Accept: application/sdp\r\n"
        )?;
        if !snapshot.name.is_empty() {
            write!(bytes, "User-Agent: {}\r\n", snapshot.name)?;
        }
        bytes.write_all(b"Content-Length: 0\r\n\r\n")
    }

    /// Records the result of this probe in the health of the back end. `answer` is the status of the
    /// final response, or `None` if there was none. A back end that is down gets no new calls, as
    /// RFC 7339 §5.9 asks "in the event of repeated timeouts or fatal transport errors". Requests
    /// within existing calls still go to it.
    pub(super) fn end(
        &self,
        snapshot: &Snapshot,
        now: Timestamp,
        backend_ref: BackendRef,
        answer: Option<u16>,
    ) {
        let probe = snapshot.pool(backend_ref.pool).health.probe.as_ref();
        let backend = snapshot.backend(backend_ref);
        // If the address of the back end has changed since the probe, the result is meaningless.
        if !backend.is_present_at(self.address) {
            return;
        }
        let was_clear = backend.is_clear(now);
        match (answer, self.suspect_since, probe) {
            (Some(_), Some(_), _) if !self.is_regular => backend.on_probe_answered(now, 1),
            (None, Some(since), _) if !backend.has_answered(since) => {
                let pause = pause_of(snapshot, backend_ref);
                backend.on_question_unanswered(now, pause, probe.is_some());
                cap_exclusions(now, snapshot, backend_ref);
            }
            (Some(status), _, Some(probe)) if probe.accept.holds(status) => {
                backend.on_probe_answered(now, probe.rise);
            }
            (Some(_), _, Some(probe)) | (None, None, Some(probe)) => {
                backend.on_probe_failed(now, probe.fall, answer);
            }
            (None, Some(_), _) | (_, _, None) => {}
        }
        if backend.is_clear(now) != was_clear || backend.is_spared() {
            spare(now, snapshot);
        }
    }
}
