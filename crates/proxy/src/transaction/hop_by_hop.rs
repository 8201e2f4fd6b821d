//! Hop-by-hop requests that we generate: the ACK to a final response other than 2xx (RFC 3261
//! §17.1.1.3) and CANCEL (§9.1).

use std::io::Write as _;

use tidegate_sip::{HeaderName, Message, first_value};
use tidegate_world::Buffer;

use crate::rewrite::MAX_FORWARDS;
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::transaction::branches::{branch_of, write_again};
use crate::transaction::context::{Cancel, Context, Live};
use crate::transaction::reason::Reason;

/// Stores the Request-URI and Route that the ACK of a branch shares with its INVITE.
pub(crate) fn record_hop(snapshot: &Snapshot, context: &mut Context, index: usize) {
    let Some(live) = &context.live else { return };
    context.branches[index].hop = hop_of(snapshot, context, live, index);
}

/// Returns Request-URI and Route of the request that a branch sent.
fn hop_of(snapshot: &Snapshot, context: &Context, live: &Live, index: usize) -> Option<Box<[u8]>> {
    let bytes = write_again(snapshot, context, live, index)?;
    // Use `parse_head`, because the sent request may have more lines than `parse` accepts.
    let message = Message::parse_head(&bytes).ok()?;
    let mut hop = [message.request_uri()?, b" SIP/2.0\r\n"].concat();
    // RFC 3261 §17.1.1.3: "If the INVITE request whose response is being acknowledged had
    // Route header fields, those header fields MUST appear in the ACK." §9.1 says the same.
    for route in message.fields().filter(|field| field.name == HeaderName::Route) {
        hop.extend_from_slice(route.line);
    }
    Some(hop.into())
}

/// The message from which a hop-by-hop request copies From, To and Call-ID: a response to the
/// branch, or the request of the branch. A response may have lines that do not follow the grammar.
pub(crate) struct Model<'a> {
    pub(crate) bytes: &'a [u8],
    /// The sequence number in the CSeq of the message.
    pub(crate) number: u32,
}

/// Acknowledges a final response to a branch of an INVITE.
pub(crate) fn send_ack(step: &mut Step<'_>, context: &Context, index: usize, response: &Model<'_>) {
    let Some(hop) = &context.branches[index].hop else { return };
    // RFC 3261 §17.1.1.3: "The ACK request constructed by the client transaction MUST contain
    // values for the Call-ID, From, and Request-URI that are equal to the values of those header
    // fields in the request passed to the transport by the client transaction [...]. The To header
    // field in the ACK MUST equal the To header field in the response being acknowledged".
    send_hop(step, context, index, "ACK", hop, response, b"");
}

pub(crate) fn send_cancel(step: &mut Step<'_>, context: &Context, live: &Live, index: usize) {
    let Some(hop) = hop_of(step.snapshot, context, live, index) else { return };
    let Ok(request) = Message::parse_head(&live.request) else { return };
    let Ok(cseq) = request.cseq() else { return };
    let request = Model { bytes: &live.request, number: cseq.number };
    // RFC 3261 §9.1: "The Request-URI, Call-ID, To, the numeric part of CSeq, and From header
    // fields in the CANCEL request MUST be identical to those in the request being cancelled,
    // including tags."
    let says_why = matches!(&live.pending[index].cancel, Cancel::Sent(sent) if sent.has_reason);
    let reason = live.reason.as_ref().filter(|_| says_why).map(Reason::lines);
    let reason = reason.unwrap_or_default();
    send_hop(step, context, index, "CANCEL", &hop, &request, &reason);
}

/// Sends a request without body to the target of a branch. `more` contains further header lines.
fn send_hop(
    step: &mut Step<'_>,
    context: &Context,
    index: usize,
    method: &str,
    hop: &[u8],
    model: &Model<'_>,
    more: &[u8],
) {
    let branch = &context.branches[index];
    let (egress, target) = (branch.egress, branch.target);
    let Some(own) = step.snapshot.addresses.listener(egress.into()) else { return };
    let ingress = step.snapshot.addresses.listener_at(&context.back) as u8;
    let text = branch_of(step.snapshot, context, index, ingress);
    let offer = step.snapshot.next_hops.offer_text(branch.offer);
    let top = [own.via.as_bytes(), text.as_bytes(), &offer];
    let Some(bytes) = write_hop(step.snapshot, method, hop, top, model, more) else { return };
    step.snapshot.next_hops.on_hop_by_hop(step.now, target.address);
    // RFC 3261 §17.1.1.2: "The ACK MUST be sent to the same address, port, and transport to which
    // the original request was sent."
    // RFC 6026 §8.4: "The ACK MUST be sent to the same address, port, and transport to which the
    // original request was sent."
    // RFC 3263 §4: "That is, once a SIP server has successfully been contacted (success is defined
    // below), all retransmissions of the SIP request and the ACK for non-2xx SIP responses to
    // INVITE MUST be sent to the same host." "Furthermore, a CANCEL for a particular SIP request
    // MUST be sent to the same SIP server that the SIP request was delivered to."
    // RFC 3263 §4.4: "When a server is contacted successfully, all retransmissions of the request
    // for the transaction, as well as ACK for a non-2xx final response, and CANCEL requests for
    // that transaction, MUST go to the same server."
    step.output.send_from(step.snapshot, egress, &target, bytes);
}

fn write_hop(
    snapshot: &Snapshot,
    method: &str,
    hop: &[u8],
    [via, branch, offer]: [&[u8]; 3],
    model: &Model<'_>,
    more: &[u8],
) -> Option<Buffer> {
    let (uri, routes) = hop.split_at(hop.iter().position(|&b| b == b'\n')? + 1);
    let mut out = snapshot.buffers.take();
    let mut write = |part: &[u8]| out.write_all(part).ok();
    write(method.as_bytes())?;
    write(b" ")?;
    write(uri)?;
    // RFC 3261 §17.1.1.3: "The ACK MUST contain a single Via header field, and this MUST be
    // equal to the top Via header field of the original request." §9.1: "A CANCEL constructed
    // by a client MUST have only a single Via header field value matching the top Via value in
    // the request being cancelled."
    write(via)?;
    write(branch)?;
    write(offer)?;
    write(b"\r\n")?;
    write(routes)?;
    for name in [HeaderName::From, HeaderName::To, HeaderName::CallId] {
        let value = first_value(model.bytes, name)?;
        write(name.text().as_bytes())?;
        write(b": ")?;
        write(value)?;
        write(b"\r\n")?;
    }
    let mut digits = itoa::Buffer::new();
    // RFC 3261 §17.1.1.3: "The CSeq header field in the ACK MUST contain the same value for the
    // sequence number as was present in the original request, but the method parameter MUST be
    // equal to "ACK"." "Therefore, placement of bodies in ACK for non-2xx is NOT RECOMMENDED, but
    // if done, the body types are restricted to any that appeared in the INVITE, assuming that the
    // response to the INVITE was not 415."
    write(b"CSeq: ")?;
    write(digits.format(model.number).as_bytes())?;
    write(b" ")?;
    write(method.as_bytes())?;
    write(b"\r\n")?;
    write(more)?;
    write(b"Max-Forwards: ")?;
    write(digits.format(MAX_FORWARDS).as_bytes())?;
    write(b"\r\nContent-Length: 0\r\n\r\n")?;
    Some(out)
}
