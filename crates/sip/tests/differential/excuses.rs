//! The permitted differences between our parser and tshark. In each one, our parser is right, or
//! neither is wrong.

use std::fmt;

use super::corpus::{Case, Kind};
use super::grammar;

/// A reason why tshark (4.0.17) may find another value than our parser.
pub struct Excuse {
    pub name: &'static str,
    pub covers: fn(&Seen<'_>) -> bool,
}

/// A value for which the two parsers differ, or `message` for the message as a whole.
pub struct Seen<'a> {
    pub case: &'a Case,
    pub field: &'a str,
    pub ours: Option<&'a [String]>,
    pub theirs: Option<&'a [String]>,
}

impl fmt::Display for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, field, ours, theirs } = self;
        write!(f, "{} {field}: ours {ours:?}, tshark's {theirs:?} in\n{}", case.name, case.text())
    }
}

impl Seen<'_> {
    fn is_via(&self) -> bool {
        self.field.starts_with("via ")
    }

    /// Returns the headers that the value comes from. The first text is everything before the
    /// colon. The second text is the value with its folds.
    fn headers(&self) -> Vec<(String, String)> {
        let names: &[&str] = match self.field {
            "call-id" => &["call-id", "i"],
            "cseq number" | "cseq method" => &["cseq"],
            "from tag" => &["from", "f"],
            "to tag" => &["to", "t"],
            "max-forwards" => &["max-forwards"],
            "content-length" => &["content-length", "l"],
            "route lines" => &["route"],
            "record-route lines" => &["record-route"],
            field if field.starts_with("via ") => &["via", "v"],
            _ => &[],
        };
        self.headers_called(names)
    }

    fn headers_called(&self, names: &[&str]) -> Vec<(String, String)> {
        let head = self.case.head().replace("\r\n", "\n");
        let head = head.replace("\n ", "\u{1} ").replace("\n\t", "\u{1}\t");
        let lines = head.split('\n').skip(1).filter_map(|line| line.split_once(':'));
        lines
            .filter(|(name, _)| names.contains(&&*name.trim().to_ascii_lowercase()))
            .map(|(name, value)| (name.to_owned(), value.replace('\u{1}', "\r\n")))
            .collect()
    }

    fn start_line(&self) -> String {
        self.case.text().lines().next().unwrap_or_default().to_owned()
    }

    fn some_value(&self, test: impl Fn(&str) -> bool) -> bool {
        self.headers().iter().any(|(_, value)| test(value))
    }
}

pub const EXCUSES: &[Excuse] = &[
    // RFC 3261 §25.1: HCOLON = *( SP / HTAB ) ":" SWS.
    Excuse {
        name: "tshark does not recognise a header name that is followed by white space",
        covers: |seen| seen.headers().iter().any(|(name, _)| name.ends_with([' ', '\t'])),
    },
    // RFC 3261 §25.1: via-parm = sent-protocol LWS sent-by *( SEMI via-params ), with
    // SLASH = SWS "/" SWS, SEMI = SWS ";" SWS, EQUAL = SWS "=" SWS, COLON = SWS ":" SWS.
    Excuse {
        name: "tshark misreads a Via with white space at another place than after the protocol",
        covers: |seen| {
            seen.is_via()
                && seen.some_value(|value| {
                    value.split(',').any(|via| via.split_whitespace().count() != 2)
                })
        },
    },
    // RFC 3261 §25.1: gen-value = token / host / quoted-string.
    Excuse {
        name: "tshark ends a Via at a comma within quotes",
        covers: |seen| seen.is_via() && seen.some_value(|value| value.contains('"')),
    },
    // RFC 3261 §25.1: sent-by = host [ COLON port ]
    Excuse {
        name: "tshark misses a port at the end of the header",
        covers: |seen| {
            let at_end = |value: &str| {
                let sent_by = value.trim_end().rsplit_once(' ').map_or("", |(_, sent_by)| sent_by);
                sent_by.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
            };
            seen.field == "via ports" && seen.some_value(at_end)
        },
    },
    // RFC 3261 §25.1: Content-Length = ( "Content-Length" / "l" ) HCOLON 1*DIGIT; between a value
    // and the line end there is white space (§7.3.1).
    Excuse {
        name: "tshark reads a number that is followed by white space as zero",
        covers: |seen| {
            seen.field == "content-length" && seen.some_value(|value| value.ends_with([' ', '\t']))
        },
    },
    Excuse {
        name: "tshark reads the comma after a Via without parameters as part of the host",
        covers: |seen| {
            let is_bare = |value: &str| {
                let vias: Vec<_> = value.split(',').collect();
                vias[..vias.len() - 1].iter().any(|via| !via.contains(';'))
            };
            seen.is_via() && seen.some_value(is_bare)
        },
    },
    // RFC 3261 §7: "the empty line MUST be present even if the message-body is not."
    Excuse {
        name: "tshark reads a message that lacks the empty line after its headers",
        covers: |seen| {
            let text = seen.case.text().replace("\r\n", "\n");
            seen.field == "message" && !text.contains("\n\n")
        },
    },
    // RFC 3261 §7.3.1: "field-name: field-value"; §25.1: header-name = token.
    Excuse {
        name: "tshark ignores a line that is not a header",
        covers: |seen| {
            let is_header = |line: &str| {
                let name = line.split_once(':').map_or("", |(name, _)| name.trim_end());
                let legal = |c: char| c.is_ascii_alphanumeric() || "-.!%*_+`'~".contains(c);
                !name.is_empty() && name.chars().all(legal)
            };
            let head = seen.case.head().replace("\r\n", "\n");
            // The line directly after the start line cannot continue a header.
            let mut lines = head.trim_end_matches('\n').split('\n').skip(1).enumerate();
            seen.field == "message"
                && lines
                    .any(|(i, line)| !is_header(line) && (i == 0 || !line.starts_with([' ', '\t'])))
        },
    },
    Excuse {
        name: "the header breaks its grammar, and neither reading is wrong",
        covers: |seen| {
            seen.case.kind != Kind::Generated
                && seen.some_value(|value| !grammar::follows(seen.field, value))
        },
    },
    // RFC 3261 §25.1: Method = ... / extension-method, which is a token.
    Excuse {
        name: "tshark accepts any word as a method",
        covers: |seen| {
            let start = seen.start_line();
            let method = start.split(' ').next().unwrap_or_default();
            seen.field == "message" && seen.theirs.is_some() && !grammar::is_token(method)
        },
    },
    // RFC 3261 §16.3 items 1 and 2: the Request-URI is examined when the message is checked.
    Excuse {
        name: "our Message accepts any word as a Request-URI until the URI is parsed",
        covers: |seen| {
            let start = seen.start_line();
            let uri = start.split(' ').nth(1).unwrap_or_default();
            let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
            seen.field == "message" && !grammar::is_token(scheme)
        },
    },
    Excuse {
        name: "tshark stops at a CSeq that it does not understand",
        covers: |seen| {
            let understood = |value: &str| {
                let method = value.split_whitespace().nth(1).unwrap_or_default();
                let plain = method.starts_with(|c: char| c.is_ascii_alphabetic());
                plain && method.len() <= 16 && grammar::follows("cseq number", value)
            };
            let values = seen.headers_called(&["cseq"]);
            let is_less = seen.field.ends_with(" lines")
                || seen.ours.unwrap_or_default().starts_with(seen.theirs.unwrap_or_default());
            is_less && values.iter().any(|(_, value)| !understood(value))
        },
    },
    // RFC 3261 §25.1: tag-param = "tag" EQUAL token, with EQUAL = SWS "=" SWS; §7.3.1: "parameter
    // names [...] are case-insensitive".
    Excuse {
        name: "tshark finds the letters `tag=` at any place",
        covers: |seen| {
            let is_other = |value: &str| {
                let plain = value.match_indices("tag=").filter(|(at, _)| {
                    let before = value[..*at].trim_end();
                    before.ends_with(';') && before.matches('"').count().is_multiple_of(2)
                });
                let all = value.to_ascii_lowercase().matches("tag").count();
                plain.count() != all
            };
            seen.field.ends_with(" tag") && seen.some_value(is_other)
        },
    },
    // RFC 3261 §7.3.1 allows only lists to occur more than once. We take the first.
    Excuse {
        name: "tshark uses either of two headers although only one is allowed",
        covers: |seen| {
            !seen.is_via() && !seen.field.ends_with("route lines") && seen.headers().len() > 1
        },
    },
    Excuse {
        name: "tshark accepts every parameter that begins with `branch` as the branch",
        covers: |seen| {
            let is_other = |value: &str| {
                value
                    .match_indices("branch")
                    .any(|(at, word)| !value[at + word.len()..].trim_start().starts_with('='))
            };
            seen.field == "via branches" && seen.some_value(is_other)
        },
    },
    // RFC 3261 §25.1: Method = ... / extension-method, which is a token and may begin with a digit.
    Excuse {
        name: "tshark starts the method of a CSeq at the first letter",
        covers: |seen| {
            seen.field == "cseq method"
                && seen.some_value(|value| {
                    let method = value.split_whitespace().nth(1).unwrap_or_default();
                    !method.starts_with(|c: char| c.is_ascii_alphabetic())
                })
        },
    },
    // RFC 3261 §7: lines end in CRLF. §25.1 has no CR by itself. We read it as white space.
    Excuse {
        name: "tshark ends a line at a CR without an LF",
        covers: |seen| {
            seen.case.kind != Kind::Generated && seen.case.head().replace("\r\n", "").contains('\r')
        },
    },
    // RFC 3261 §7.1: "The SIP-Version string is case-insensitive, but implementations MUST send
    // upper-case."
    Excuse {
        name: "tshark recognises the version only in capital letters",
        covers: |seen| {
            let start = seen.start_line();
            let is_ours = start.to_ascii_uppercase().contains("SIP/2.0");
            seen.field == "message" && is_ours && !start.contains("SIP/2.0")
        },
    },
];
