//! A called party with special numbers. Attackers call these numbers to make a back end look
//! faulty.

use tidegate_agent::Answerer;
use tidegate_sip::{Message, Method, Reply, reason, write_reply};
use tidegate_world::{Core, Pool, Received, Timestamp, Transmit, delegate};

use std::collections::VecDeque;

/// An [`Answerer`] with three special numbers. It silently drops requests with a Via that violates
/// the grammar, as Kamailio does.
///
/// | called number | response to an INVITE |
/// | --- | --- |
/// | `closed` | 503 with Retry-After: 3600 |
/// | `void` | none |
/// | `endless` | 180, and no final response |
pub(super) struct Exchange {
    pub(super) answerer: Answerer,
    pool: Pool,
    out: VecDeque<Transmit>,
}

/// The special numbers. Each has the status of the response to an INVITE, or `None` for no
/// response.
const NUMBERS: [(&str, Option<u16>); 3] =
    [("closed", Some(503)), ("void", None), ("endless", Some(180))];

impl Exchange {
    pub(super) fn new(answerer: Answerer, pool: Pool) -> Self {
        Self { answerer, pool, out: VecDeque::new() }
    }

    fn say(&mut self, received: &Received, request: &Message<'_>, status: u16) {
        // All copies of a request belong to one transaction, so they get the same To-tag.
        let to_tag = request.call_id().unwrap_or_default();
        let to_tag: Vec<u8> =
            to_tag.iter().copied().filter(u8::is_ascii_alphanumeric).take(32).collect();
        let wait: &[(&str, &[u8])] = &[("Retry-After", b"3600")];
        let headers = if status == 503 { wait } else { &[] };
        let source = Some(received.flow.remote);
        let to_tag = Some(&*to_tag);
        let reply = Reply { status, reason: reason(status), to_tag, source, headers };
        let mut bytes = self.pool.take();
        if write_reply(request, &reply, &mut bytes).is_ok() {
            self.out.push_back(Transmit::new(received.flow, bytes));
        }
    }
}

impl Core for Exchange {
    fn offer(&mut self, now: Timestamp, received: Received) {
        if let Ok(request) = Message::parse(&received.bytes)
            && let Some(uri) = request.request_uri()
        {
            if request.vias().any(|via| via.is_err()) {
                return;
            }
            let user = uri.strip_prefix(b"sip:").unwrap_or(uri);
            let called = |(number, _): &&(&str, _)| {
                user.strip_prefix(number.as_bytes()).is_some_and(|rest| rest.starts_with(b"@"))
            };
            if let Some((_, status)) = NUMBERS.iter().find(called) {
                let is_invite = request.method() == Some(Method::Invite);
                if let Some(status) = status.filter(|_| is_invite) {
                    self.say(&received, &request, status);
                }
                return;
            }
        }
        self.answerer.offer(now, received);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front().or_else(|| self.answerer.poll_transmit())
    }

    delegate!(self.answerer, but offer, poll_transmit);
}
