//! Selects the final response to send upstream: RFC 3261 §16.7 items 6 and 7.

use super::message::Message;

/// §16.7 item 6: "The proxy SHOULD give preference to responses that provide information
/// affecting resubmission of this request, such as 401, 407, 415, 420, and 484 if the 4xx class
/// is chosen."
const PREFERRED: [u16; 5] = [401, 407, 415, 420, 484];

/// Returns the best of the received responses, given in their order, or `None` if there are none.
pub fn best(responses: &[Message]) -> Option<Message> {
    let rank = |response: &&Message| {
        let status = response.status().expect("a response has a status");
        // "It MUST choose from the 6xx class responses if any exist in the context. If no 6xx
        // class responses are present, the proxy SHOULD choose from the lowest response class".
        let class = if status >= 600 { 0 } else { status / 100 };
        // "If the only response that was received is a 503, the proxy SHOULD generate a 500".
        (class, status == 503 || class == 4 && !PREFERRED.contains(&status))
    };
    // The first of equally good responses wins.
    let mut best = responses.iter().min_by_key(rank)?.clone();
    if matches!(best.status(), Some(401 | 407)) {
        add_challenges(&mut best, responses);
    }
    Some(best)
}

/// §16.7 item 7: "the proxy MUST collect any WWW-Authenticate and Proxy-Authenticate header field
/// values from all other 401 (Unauthorized) and 407 (Proxy Authentication Required) responses
/// received so far in this response context and add them to this response".
fn add_challenges(best: &mut Message, responses: &[Message]) {
    let mut chosen = false;
    for response in responses.iter().filter(|r| matches!(r.status(), Some(401 | 407))) {
        if !chosen && response.start == best.start && response.headers == best.headers {
            chosen = true;
            continue;
        }
        for name in ["WWW-Authenticate", "Proxy-Authenticate"] {
            for value in response.all(name) {
                best.headers.push((name.to_owned(), value.to_owned()));
            }
        }
    }
}
