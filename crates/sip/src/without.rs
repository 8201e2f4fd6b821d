//! Writes a message without some of its header lines.

use std::io::{self, Write};

use crate::HeaderName;
use crate::field::{Line, line_end};
use crate::lexical::{find, trim_end};

/// Writes the message in `bytes`, which begins with its start line. Leaves out a header line if
/// `goes` returns true for its name, and copies all other bytes unchanged.
///
/// # Errors
/// Returns the errors of `out`.
pub fn write_without(
    bytes: &[u8],
    goes: impl Fn(HeaderName) -> bool,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let mut written = 0;
    let mut at = Line::skip(bytes, 0).unwrap_or(bytes.len());
    while line_end(&bytes[at..]) == 0
        && let Ok(end) = Line::skip(bytes, at)
    {
        let name = find(b':', &bytes[at..end]).map(|colon| trim_end(&bytes[at..at + colon]));
        if name.is_some_and(|name| goes(HeaderName::from_bytes(name))) {
            out.write_all(&bytes[written..at])?;
            written = end;
        }
        at = end;
    }
    out.write_all(&bytes[written..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(text: &str) -> String {
        let mut out = Vec::new();
        write_without(text.as_bytes(), |name| name == HeaderName::Subject, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_of_that_name_go_with_their_folds_and_nothing_else() {
        let text = "SIP/2.0 200 OK\r\nTo: a\r\nsubject : x\r\n y\r\ns: z\r\nodd line\r\nSubjects: b\r\n\r\nSubject: c\r\n";
        let left = "SIP/2.0 200 OK\r\nTo: a\r\nodd line\r\nSubjects: b\r\n\r\nSubject: c\r\n";
        assert_eq!(without(text), left);
        assert_eq!(without(left), left);
    }

    #[test]
    fn any_number_of_lines_goes() {
        let lines = "Subject: x\r\n".repeat(500);
        assert_eq!(
            without(&format!("OPTIONS sip:a SIP/2.0\r\n{lines}\r\n")),
            "OPTIONS sip:a SIP/2.0\r\n\r\n"
        );
    }

    #[test]
    fn an_endless_quotation_is_copied() {
        for text in ["", "x", "SIP/2.0 200 OK\r\n", "SIP/2.0 200 OK\r\nTo: a"] {
            assert_eq!(without(text), text);
        }
    }
}
