//! Reason phrases (RFC 3261 §21 and later registrations).

/// Returns the phrase registered for `status`. For an unregistered status, returns the phrase of
/// its class. Outside 100 to 699, returns an empty string.
pub const fn reason(status: u16) -> &'static str {
    match status {
        100 => "Trying",
        180 => "Ringing",
        181 => "Call Is Being Forwarded",
        182 => "Queued",
        183 => "Session Progress",
        199 => "Early Dialog Terminated",
        200 => "OK",
        202 => "Accepted",
        204 => "No Notification",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Moved Temporarily",
        305 => "Use Proxy",
        380 => "Alternative Service",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        410 => "Gone",
        412 => "Conditional Request Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Unsupported URI Scheme",
        417 => "Unknown Resource-Priority",
        420 => "Bad Extension",
        421 => "Extension Required",
        422 => "Session Interval Too Small",
        423 => "Interval Too Brief",
        429 => "Provide Referrer Identity",
        430 => "Flow Failed",
        433 => "Anonymity Disallowed",
        439 => "First Hop Lacks Outbound Support",
        440 => "Max-Breadth Exceeded",
        480 => "Temporarily Unavailable",
        481 => "Call/Transaction Does Not Exist",
        482 => "Loop Detected",
        483 => "Too Many Hops",
        484 => "Address Incomplete",
        485 => "Ambiguous",
        486 => "Busy Here",
        487 => "Request Terminated",
        488 => "Not Acceptable Here",
        489 => "Bad Event",
        491 => "Request Pending",
        493 => "Undecipherable",
        494 => "Security Agreement Required",
        500 => "Server Internal Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Server Time-out",
        505 => "Version Not Supported",
        513 => "Message Too Large",
        580 => "Precondition Failure",
        600 => "Busy Everywhere",
        603 => "Decline",
        604 => "Does Not Exist Anywhere",
        606 => "Not Acceptable",
        _ => class(status),
    }
}

/// Returns the phrase for a status that is not registered. RFC 3261 §8.1.3.2: an unknown code is
/// treated as the x00 code of its class, or as 183 if it is provisional.
const fn class(status: u16) -> &'static str {
    match status / 100 {
        1 => reason(183),
        2 => reason(200),
        3 => reason(300),
        4 => reason(400),
        5 => reason(500),
        6 => reason(600),
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::reason;

    /// The phrases in RFC 3261 §21 and in the IANA registry of response codes.
    const PHRASES: &str = "
        100 Trying
        180 Ringing
        181 Call Is Being Forwarded
        182 Queued
        183 Session Progress
        199 Early Dialog Terminated
        200 OK
        202 Accepted
        204 No Notification
        300 Multiple Choices
        301 Moved Permanently
        302 Moved Temporarily
        305 Use Proxy
        380 Alternative Service
        400 Bad Request
        401 Unauthorized
        402 Payment Required
        403 Forbidden
        404 Not Found
        405 Method Not Allowed
        406 Not Acceptable
        407 Proxy Authentication Required
        408 Request Timeout
        410 Gone
        412 Conditional Request Failed
        413 Request Entity Too Large
        414 Request-URI Too Long
        415 Unsupported Media Type
        416 Unsupported URI Scheme
        417 Unknown Resource-Priority
        420 Bad Extension
        421 Extension Required
        422 Session Interval Too Small
        423 Interval Too Brief
        429 Provide Referrer Identity
        430 Flow Failed
        433 Anonymity Disallowed
        439 First Hop Lacks Outbound Support
        440 Max-Breadth Exceeded
        480 Temporarily Unavailable
        481 Call/Transaction Does Not Exist
        482 Loop Detected
        483 Too Many Hops
        484 Address Incomplete
        485 Ambiguous
        486 Busy Here
        487 Request Terminated
        488 Not Acceptable Here
        489 Bad Event
        491 Request Pending
        493 Undecipherable
        494 Security Agreement Required
        500 Server Internal Error
        501 Not Implemented
        502 Bad Gateway
        503 Service Unavailable
        504 Server Time-out
        505 Version Not Supported
        513 Message Too Large
        580 Precondition Failure
        600 Busy Everywhere
        603 Decline
        604 Does Not Exist Anywhere
        606 Not Acceptable
    ";

    #[test]
    fn the_phrases_are_those_of_the_registry() {
        for line in PHRASES.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (status, phrase) = line.split_once(' ').unwrap();
            assert_eq!(reason(status.parse().unwrap()), phrase);
        }
    }

    #[test]
    fn every_status_has_a_phrase_and_nothing_else_has() {
        assert!((100..700).all(|status| !reason(status).is_empty()));
        assert_eq!((reason(0), reason(99), reason(700)), ("", "", ""));
        assert_eq!(reason(503), "Service Unavailable");
        assert_eq!(reason(499), reason(400));
    }
}
