//! Removes the overload control parameters of other elements from a message, and adds feedback.

use std::io::{self, Write};

use memchr::memchr3;

use super::index_of;
use crate::HeaderName;
use crate::element::Elements;
use crate::field::{Line, line_end};
use crate::lexical::{find, quoted_end, trim, trim_end};
use crate::params::Param;
use crate::via::Parts;

/// Returns whether a Via contains an angle bracket outside quotes, which the grammar does not
/// allow. A comma between two brackets does not end the element. If a parameter with the first
/// bracket were removed, the comma would end the element.
fn has_bracket(via: &[u8]) -> bool {
    let mut rest = via;
    while let Some(at) = memchr3(b'"', b'<', b'>', rest) {
        rest = &rest[at..];
        if rest[0] != b'"' {
            return true;
        }
        let Some(length) = quoted_end(rest) else { return false };
        rest = &rest[length..];
    }
    false
}

/// Writes `message` with changed overload control parameters. `message` begins with its start line.
/// The first `kept` Vias keep their parameters, all other Vias lose them, and `feedback` is
/// appended to the first Via. All other text is copied unchanged.
///
/// Returns `false` if a Via violates the grammar. Then this Via and all Vias after it are copied
/// unchanged too. There is one exception: a Via that violates the grammar only after a quoted value
/// is changed like a valid Via.
///
/// RFC 7339 §5.4: "A SIP client SHOULD remove the "oc", "oc-validity", and "oc-seq" parameters from all Via
/// headers of a response received, except for the topmost Via header." §5.6: "This means that a SIP proxy
/// SHOULD strip the overload control parameters inserted by the client before proxying the request
/// further downstream."
///
/// # Errors
/// Returns the errors of `out`.
pub fn write_overload_control(
    message: &[u8],
    kept: usize,
    feedback: &[u8],
    out: &mut (impl Write + ?Sized),
) -> io::Result<bool> {
    let place = |part: &[u8]| part.as_ptr() as usize - message.as_ptr() as usize;
    let (mut written, mut passed, mut are_valid) = (0, 0, true);
    let mut at = Line::skip(message, 0).unwrap_or(message.len());
    'lines: while line_end(&message[at..]) == 0
        && let Ok(end) = Line::skip(message, at)
    {
        let line = &message[at..end];
        at = end;
        let Some(colon) = find(b':', line) else { continue };
        if HeaderName::from_bytes(trim_end(&line[..colon])) != HeaderName::Via {
            continue;
        }
        for element in Elements::of(trim(&line[colon + 1..])) {
            let element = element.filter(|element| !has_bracket(element));
            let parts = element.and_then(|element| Some((element, Parts::of(element)?)));
            let Some((element, Parts { params, .. })) = parts else {
                are_valid = false;
                break 'lines;
            };
            let mut params = params.iter();
            while let Some(Param { name, .. }) = params.next() {
                if passed < kept || index_of(name).is_none() {
                    continue;
                }
                let begin = place(name);
                let semicolon = message[..begin].iter().rposition(|&b| b == b';').unwrap_or(begin);
                out.write_all(&message[written..semicolon])?;
                written = place(params.rest());
            }
            if passed == 0 {
                let end = place(element) + element.len();
                out.write_all(&message[written..end])?;
                out.write_all(feedback)?;
                written = end;
            }
            passed += 1;
        }
    }
    out.write_all(&message[written..])?;
    Ok(are_valid)
}

/// Returns whether [`write_overload_control`] can change all Vias of `message`, which begins with
/// its start line.
#[cold]
pub(crate) fn can_write_overload_control(message: &[u8]) -> bool {
    write_overload_control(message, usize::MAX, b"", &mut io::sink()).is_ok_and(|valid| valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(vias: &str, kept: usize, feedback: &str) -> String {
        let message = format!("SIP/2.0 200 OK\r\n{vias}To: <sip:a;oc>\r\n\r\nVia: x;oc\r\n");
        let mut out = Vec::new();
        write_overload_control(message.as_bytes(), kept, feedback.as_bytes(), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let end = "To: <sip:a;oc>\r\n\r\nVia: x;oc\r\n";
        out.strip_prefix("SIP/2.0 200 OK\r\n").unwrap().strip_suffix(end).unwrap().to_owned()
    }

    /// RFC 7339 §5.4: "A SIP client SHOULD remove the "oc", "oc-validity", and "oc-seq" parameters from all
    /// Via headers of a response received, except for the topmost Via header."
    #[test]
    fn parameters_are_removed_from_all_vias_except_the_kept_ones() {
        let vias = "v: SIP/2.0/UDP a;oc=1;branch=b ;oc-seq=1.1 , SIP/2.0/UDP c ; oc ;x;OC-Algo=\",\"\r\n\
            X: y;oc\r\nVia: SIP/2.0/UDP d;\r\n oc;oc;oc-validity=5;rport\r\n";
        assert_eq!(
            rewritten(vias, 0, ""),
            "v: SIP/2.0/UDP a;branch=b  , SIP/2.0/UDP c ;x\r\nX: y;oc\r\nVia: SIP/2.0/UDP d;rport\r\n"
        );
        assert_eq!(
            rewritten(vias, 2, ""),
            "v: SIP/2.0/UDP a;oc=1;branch=b ;oc-seq=1.1 , SIP/2.0/UDP c ; oc ;x;OC-Algo=\",\"\r\n\
             X: y;oc\r\nVia: SIP/2.0/UDP d;rport\r\n"
        );
        assert_eq!(rewritten(vias, usize::MAX, ""), vias);
        let with_load = "Via: SIP/2.0/UDP a;oc;oc-tgload=5.5;branch=b\r\n";
        assert_eq!(rewritten(with_load, 0, ""), "Via: SIP/2.0/UDP a;branch=b\r\n");
    }

    #[test]
    fn feedback_is_put_behind_the_parameters_of_the_first_via() {
        let vias = "Via: SIP/2.0/UDP a;oc;branch=b;oc-algo=\"loss\" ,SIP/2.0/UDP c;oc=9\r\n";
        assert_eq!(
            rewritten(vias, 0, ";oc=5"),
            "Via: SIP/2.0/UDP a;branch=b;oc=5 ,SIP/2.0/UDP c\r\n"
        );
        assert_eq!(rewritten("Via: SIP/2.0/UDP a\r\n", 0, ";oc=5"), "Via: SIP/2.0/UDP a;oc=5\r\n");
        assert_eq!(rewritten("", 0, ";oc=5"), "");
    }

    /// Text behind a quoted value is removed with its parameter. Otherwise it would become part of
    /// the preceding parameter or of the sent-by.
    #[test]
    fn text_behind_a_quoted_value_is_removed_too() {
        assert_eq!(rewritten("Via: SIP/2.0/UDP a;oc=\"1\"b\r\n", 0, ""), "Via: SIP/2.0/UDP a\r\n");
        assert_eq!(
            rewritten("Via: SIP/2.0/UDP a;oc-algo=\"1\"b;rport;oc\r\n", 0, ""),
            "Via: SIP/2.0/UDP a;rport\r\n"
        );
    }

    fn can_write(vias: &str) -> bool {
        can_write_overload_control(format!("SIP/2.0 200 OK\r\n{vias}\r\n").as_bytes())
    }

    /// If the bracket before the comma were removed with its parameter, the comma would separate
    /// two elements.
    #[test]
    fn a_via_with_brackets_cannot_be_changed() {
        let vias = "Via: SIP/2.0/UDP a;oc-algo=\"loss\"<;oc,>\r\nVia: SIP/2.0/UDP c;oc\r\n";
        assert_eq!(rewritten(vias, 0, ""), vias);
        assert!(!can_write(vias));
        let quoted = "Via: SIP/2.0/UDP a;x=\"<,>\";oc\r\n";
        assert_eq!(rewritten(quoted, 0, ""), "Via: SIP/2.0/UDP a;x=\"<,>\"\r\n");
        assert!(can_write(quoted));
    }

    #[test]
    fn vias_after_a_broken_one_cannot_be_changed() {
        let vias = "Via: SIP/2.0/UDP a;oc, ,b;oc\r\nVia: SIP/2.0/UDP c;oc\r\n";
        assert_eq!(
            rewritten(vias, 0, ""),
            "Via: SIP/2.0/UDP a, ,b;oc\r\nVia: SIP/2.0/UDP c;oc\r\n"
        );
        assert!(!can_write(vias));
        assert!(!can_write("Via: SIP/2.0/UDP a\r\nVia: nonsense;oc\r\n"));
        assert!(can_write("Via: SIP/2.0/UDP a;oc, SIP/2.0/UDP b;oc\r\n"));
    }
}
