//! The values that our parser finds.

use tidegate_sip::{Field, HeaderName, Malformed, Message, StartLine};

use super::Found;

/// Reads a message of version SIP/2.0. Accepts a wrong Content-Length.
pub fn read(bytes: &[u8]) -> Result<Found, Malformed> {
    let mut found = Found::new();
    let message = match Message::parse(bytes) {
        Err(Malformed::ContentLength | Malformed::BadHeader(_)) => Message::parse_head(bytes)?,
        parsed => parsed?,
    };
    if !message.version().eq_ignore_ascii_case(b"SIP/2.0") {
        return Err(Malformed::Version);
    }
    let mut note = |field, texts: Vec<String>| {
        if !texts.is_empty() {
            found.insert(field, texts);
        }
    };
    match message.start() {
        StartLine::Request { method_name, uri, .. } => {
            note("method", vec![text(method_name)]);
            note("uri", vec![text(uri)]);
        }
        StartLine::Response { status, .. } => note("status", vec![status.to_string()]),
    }
    note("call-id", message.call_id().map(text).into_iter().collect());
    if let Ok(cseq) = message.cseq() {
        note("cseq number", vec![cseq.number.to_string()]);
        note("cseq method", vec![text(cseq.method_name)]);
    }
    let vias: Vec<_> = message.vias().map_while(Result::ok).collect();
    note("via branches", vias.iter().filter_map(|via| via.branch()).map(text).collect());
    note("via hosts", vias.iter().map(|via| host(via.sent_by)).collect());
    note("via ports", vias.iter().filter_map(|via| via.port).map(|p| p.to_string()).collect());
    note(
        "from tag",
        message.from().ok().and_then(|from| from.tag()).map(text).into_iter().collect(),
    );
    note("to tag", message.to().ok().and_then(|to| to.tag()).map(text).into_iter().collect());
    note("max-forwards", number(message.max_forwards().ok().flatten()));
    note("content-length", number(message.content_length().ok().flatten()));
    let lines = |name| {
        let lines = message.fields().filter(|field: &Field<'_>| field.name == name).count();
        if lines > 0 { vec![lines.to_string()] } else { Vec::new() }
    };
    note("via lines", lines(HeaderName::Via));
    note("route lines", lines(HeaderName::Route));
    note("record-route lines", lines(HeaderName::RecordRoute));
    Ok(found)
}

fn number(n: Option<u32>) -> Vec<String> {
    n.map(|n| n.to_string()).into_iter().collect()
}

/// Returns the host of a sent-by as tshark writes it: as in the message, without brackets.
fn host(sent_by: &[u8]) -> String {
    let whole = text(sent_by);
    match whole.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, _)) => inside.to_owned(),
        None => whole.split(':').next().unwrap_or_default().trim_end().to_owned(),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
