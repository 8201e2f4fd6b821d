//! Selects the best of several final responses: RFC 3261 §16.7 item 6.

use tidegate_sip::{HeaderName, Message};

/// Maximum number of bytes of challenges gathered for one response.
const CHALLENGES_MAX: usize = 8192;

/// The best of the final responses received so far, except those that are forwarded at once.
pub(crate) struct Best {
    pub(crate) status: u16,
    /// The response to send upstream, or empty for a reply that the proxy generates and writes when
    /// it sends it.
    pub(crate) bytes: Box<[u8]>,
    /// The WWW-Authenticate and Proxy-Authenticate lines of other responses, which are added to
    /// this response.
    challenges: Vec<u8>,
}

impl Best {
    /// Makes a final reply with this status that the proxy generates itself.
    pub(crate) fn own(status: u16) -> Self {
        Self { status, bytes: Box::default(), challenges: Vec::new() }
    }

    /// Makes a candidate for the best response from a received response. `bytes` is the response
    /// without our Via.
    pub(crate) fn received(status: u16, bytes: &[u8]) -> Self {
        Self { status, bytes: bytes.into(), challenges: Vec::new() }
    }

    /// Returns the better of two responses, or `self` if they are equal.
    pub(crate) fn or(self, other: Self) -> Self {
        let (mut best, rest) =
            if rank(other.status) < rank(self.status) { (other, self) } else { (self, other) };
        // RFC 3261 §16.7 item 7: "If the selected response is a 401 (Unauthorized) or 407 (Proxy
        // Authentication Required), the proxy MUST collect any WWW-Authenticate and
        // Proxy-Authenticate header field values from all other 401 (Unauthorized) and 407
        // (Proxy Authentication Required) responses received so far in this response context
        // and add them to this response without modification before forwarding."
        if is_challenge(best.status) {
            best.gather(&rest);
        }
        best
    }

    fn gather(&mut self, other: &Self) {
        let mut add = |line: &[u8]| {
            if self.challenges.len() + line.len() <= CHALLENGES_MAX {
                self.challenges.extend_from_slice(line);
            }
        };
        if let Some(message) = is_challenge(other.status).then(|| Message::parse(&other.bytes))
            && let Ok(message) = message
        {
            let challenges = message.fields().filter(|field| {
                matches!(field.name, HeaderName::WwwAuthenticate | HeaderName::ProxyAuthenticate)
            });
            challenges.for_each(|field| add(field.line));
        }
        add(&other.challenges);
    }

    /// Returns the response together with the challenges of the other responses.
    pub(crate) fn into_bytes(self) -> Box<[u8]> {
        if self.challenges.is_empty() {
            return self.bytes;
        }
        let Ok(message) = Message::parse(&self.bytes) else { return self.bytes };
        let at = tidegate_sip::forward::top_of_headers(&message);
        if message.bytes().len() + self.challenges.len() > tidegate_sip::BYTES_MAX {
            return self.bytes;
        }
        let (before, after) = message.bytes().split_at(at);
        [before, &self.challenges, after].concat().into()
    }
}

fn is_challenge(status: u16) -> bool {
    matches!(status, 401 | 407)
}

/// Returns the sort key of a final response: the lowest is preferred.
///
/// RFC 3261 §16.7 item 6: "It MUST choose from the 6xx class responses if any exist in the
/// context. If no 6xx class responses are present, the proxy SHOULD choose from the lowest
/// response class stored in the response context. [...] The proxy SHOULD give preference to
/// responses that provide information affecting resubmission of this request, such as 401, 407,
/// 415, 420, and 484 if the 4xx class is chosen." "If the only response that was received is a 503,
/// the proxy SHOULD generate a 500 response and forward that upstream." So a 503 is the last choice
/// of its class.
fn rank(status: u16) -> (u16, bool) {
    let class = if status >= 600 { 0 } else { status / 100 };
    let is_preferred = match class {
        4 => matches!(status, 401 | 407 | 415 | 420 | 484),
        _ => status != 503,
    };
    (class, !is_preferred)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(statuses: &[u16]) -> u16 {
        let all = statuses.iter().map(|&status| Best::own(status));
        all.reduce(Best::or).unwrap().status
    }

    /// RFC 3261 §16.7 item 6.
    ///
    /// RFC 3261 §16.7: "It MUST choose from the 6xx class responses if any exist in the context."
    /// "If no 6xx class responses are present, the proxy SHOULD choose from the lowest response
    /// class stored in the response context." "The proxy SHOULD give preference to responses that
    /// provide information affecting resubmission of this request, such as 401, 407, 415, 420, and
    /// 484 if the 4xx class is chosen."
    #[test]
    fn the_best_is_chosen_by_class_and_by_what_the_caller_can_do_about_it() {
        assert_eq!(best(&[404, 603, 302]), 603);
        assert_eq!(best(&[500, 486, 302]), 302);
        assert_eq!(best(&[503, 486]), 486);
        assert_eq!(best(&[404, 486, 401]), 401);
        assert_eq!(best(&[486, 404]), 486, "of equals the first");
        assert_eq!(best(&[404, 484, 420]), 484);
        assert_eq!(best(&[501, 401, 603]), 603);
        assert_eq!(best(&[503, 501]), 501);
        assert_eq!(best(&[501, 503]), 501);
        assert_eq!(best(&[501, 500]), 501, "of equals the first");
    }

    fn response(status: u16, challenge: &str) -> Best {
        let text = format!("SIP/2.0 {status} x\r\nVia: SIP/2.0/UDP a\r\n{challenge}\r\n\r\n");
        Best::received(status, text.as_bytes())
    }

    /// RFC 3261 §16.7 item 7.
    #[test]
    fn all_challenges_are_passed_on() {
        let a = response(401, "WWW-Authenticate: Digest realm=\"a\"");
        let b = response(407, "Proxy-Authenticate: Digest realm=\"b\"");
        let c = response(404, "WWW-Authenticate: Digest realm=\"no\"");
        let d = response(401, "WWW-Authenticate: Digest realm=\"d\"");
        let all = [c, a, b, d].into_iter().reduce(Best::or).unwrap();
        assert_eq!(all.status, 401);
        let text = String::from_utf8(all.into_bytes().to_vec()).unwrap();
        assert_eq!(
            text,
            "SIP/2.0 401 x\r\n\
             Proxy-Authenticate: Digest realm=\"b\"\r\n\
             WWW-Authenticate: Digest realm=\"d\"\r\n\
             Via: SIP/2.0/UDP a\r\n\
             WWW-Authenticate: Digest realm=\"a\"\r\n\r\n"
        );
    }

    #[test]
    fn gathered_challenges_are_bounded() {
        let long = format!("WWW-Authenticate: {}", "x".repeat(5000));
        let three = [response(401, "A: b"), response(401, &long), response(401, &long)];
        let all = three.into_iter().reduce(Best::or).unwrap().into_bytes();
        assert!((5000..6000).contains(&all.len()), "{}", all.len());
    }
}
