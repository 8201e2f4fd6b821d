//! Parameters after a header value or inside a URI.

use memchr::memchr3;

use crate::lexical::{
    TOKEN, find, find_by_words, is_space, is_token, is_visible, quoted_end, run, run_of_words,
    trim, trim_end, trim_start,
};

/// A list of parameters such as `;name=value;name`, parsed on demand. Text that is not a parameter
/// is skipped. If a name occurs twice, the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params<'a> {
    text: &'a [u8],
}

/// One parameter of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param<'a> {
    /// The name as written. Names compare without regard to case.
    pub name: &'a [u8],
    /// The value up to the next semicolon, trimmed, or `None` for a parameter without `=`. A quoted
    /// value is given without its quotes, and its escapes are kept.
    pub value: Option<&'a [u8]>,
    /// The whole parameter, from its name to the end of its value.
    pub text: &'a [u8],
}

impl Param<'_> {
    /// Returns whether the parameter's name is `name` in any case.
    #[inline]
    pub(crate) fn is(&self, name: &str) -> bool {
        let name = name.as_bytes();
        self.name.len() == name.len() && (self.name == name || self.name.eq_ignore_ascii_case(name))
    }
}

impl<'a> Params<'a> {
    /// Creates the list for `text`, which is empty or begins with `;`.
    #[inline]
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text }
    }

    /// Returns the text of the list. It is empty or begins with the first semicolon.
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the value of the parameter called `name` in any case, `Some(None)` if it has no
    /// value, or `None` if there is no such parameter.
    #[inline]
    pub fn get(&self, name: &str) -> Option<Option<&'a [u8]>> {
        self.param(name).map(|param| param.value)
    }

    /// Returns the value of the parameter called `name`, or `None` if the parameter is absent, or
    /// if its value is missing or empty.
    #[inline]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.get(name).flatten().filter(|value| !value.is_empty())
    }

    /// Returns the same as [`value`](Self::value), but is faster if the list begins with `begin`:
    /// the name with its semicolon and its equals sign, such as `;tag=`.
    #[inline(always)]
    pub(crate) fn usual<const N: usize>(&self, begin: &[u8; N], name: &str) -> Option<&'a [u8]> {
        if let Some(value) = self.text.strip_prefix(begin) {
            let value = trim(&value[..find(b';', value).unwrap_or(value.len())]);
            if value.first() != Some(&b'"') {
                return (!value.is_empty()).then_some(value);
            }
        }
        self.value(name)
    }

    /// Splits a text into the bytes before the first semicolon and the list that begins there.
    /// Returns `None` if a byte before the semicolon is not allowed in a [plain](Self::is_plain)
    /// value, or if no byte precedes the semicolon.
    #[inline(always)]
    pub(crate) fn split_plain_text(text: &'a [u8]) -> Option<(&'a [u8], Self)> {
        let length = run_of_words(&PLAIN_VALUE, text);
        let (plain, rest) = text.split_at(length);
        let ends = length > 0 && matches!(rest.first(), None | Some(b';'));
        ends.then_some((plain, Self { text: rest }))
    }

    /// Returns the first parameter and the list after it, or `None` if the list does not begin with
    /// `first`, a parameter without a value.
    #[inline(always)]
    pub(crate) fn split_bare<const N: usize>(&self, first: &[u8; N]) -> Option<(&'a [u8], Self)> {
        let rest = self.text.strip_prefix(first)?;
        let is_bare = matches!(rest.first(), None | Some(b';'));
        is_bare.then(|| (&self.text[1..N], Self { text: rest }))
    }

    /// Returns the tag of a list that contains only a tag or nothing, as the lists of From and To
    /// usually do. `Some(None)` means that the list is empty, and `None` that it contains something
    /// else. A list that contains only a tag or nothing is [well-formed](Self::is_well_formed).
    #[inline]
    pub(crate) fn only_tag(&self) -> Option<Option<&'a [u8]>> {
        if self.text.is_empty() {
            return Some(None);
        }
        let tag = self.text.strip_prefix(b";tag=")?;
        (!tag.is_empty() && run_of_words(&PLAIN_VALUE, tag) == tag.len()).then_some(Some(tag))
    }

    /// Returns the text of the first parameter and the list after it. Returns `None` unless the
    /// list begins with `begin` (such as `;branch=`), followed by a non-empty value that is allowed
    /// in a [plain](Self::is_plain) list.
    #[inline(always)]
    pub(crate) fn split_plain<const N: usize>(&self, begin: &[u8; N]) -> Option<(&'a [u8], Self)> {
        let (value, rest) = Self::split_plain_text(self.text.strip_prefix(begin)?)?;
        Some((&self.text[1..N + value.len()], rest))
    }

    /// Returns the value in the [text](Param::text) of a parameter, or `None` if it has no value.
    #[inline]
    pub(crate) fn value_in(text: &'a [u8]) -> Option<&'a [u8]> {
        for begin in [&b"branch="[..], b"received=", b"rport="] {
            if let Some(value) = text.strip_prefix(begin)
                && value.first().is_some_and(|&b| b > b' ' && b != b'"')
            {
                return Some(value);
            }
        }
        Self::new(text).iter().next()?.value
    }

    /// Returns the parameter called `name` in any case, or `None` if there is none.
    #[inline]
    pub fn param(&self, name: &str) -> Option<Param<'a>> {
        self.iter().find(|param| param.is(name))
    }

    /// Returns whether several parameters have this name, in any case.
    pub(crate) fn repeats(&self, name: &str) -> bool {
        self.iter().filter(|param| param.is(name)).nth(1).is_some()
    }

    /// Returns whether each parameter has a name, the values without quotes contain no white space
    /// and no control characters, and it is unambiguous where each parameter starts and ends.
    #[inline]
    pub(crate) fn is_well_formed(&self) -> bool {
        self.is_plain() || !self.has_bad_text() && !self.misquotes()
    }

    /// Returns whether the list is well-formed and a value follows each equals sign, except in
    /// `rport=`.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.is_plain() || !self.lacks_value() && !self.misquotes()
    }

    /// Returns whether the list has the usual form: tokens and addresses, no white space or quotes,
    /// and a value after each equals sign. The check takes one pass.
    #[inline]
    fn is_plain(&self) -> bool {
        let mut rest = self.text;
        while let [b';', after @ ..] = rest {
            let name = match after {
                [b't', b'a', b'g', b'=', ..] => 3,
                [b'b', b'r', b'a', b'n', b'c', b'h', b'=', ..] => 6,
                _ => run(after, is_token),
            };
            rest = &after[name..];
            if let [b'=', value @ ..] = rest {
                let length = run_of_words(&PLAIN_VALUE, value);
                rest = &value[length..];
                if length == 0 {
                    return false;
                }
            }
            if name == 0 {
                return false;
            }
        }
        rest.is_empty()
    }

    /// Returns whether a parameter is empty (`;;` or a semicolon at the end), a name is not a
    /// token, or a value without quotes contains white space or control characters.
    ///
    /// RFC 3261 §25.1: "generic-param = token [ EQUAL gen-value ]" and "gen-value = token / host /
    /// quoted-string".
    fn has_bad_text(&self) -> bool {
        self.any_bad(|_| false)
    }

    /// Returns whether the list [has bad text](Self::has_bad_text), or there is no value after an
    /// equals sign. `rport=` without a value is allowed: it means the same as `rport` (RFC 3581
    /// §3).
    fn lacks_value(&self) -> bool {
        // A quoted string may be empty.
        let is_missing = |param: &Param<'_>| {
            param.value == Some(b"") && param.text.ends_with(b"=") && !param.is("rport")
        };
        self.any_bad(is_missing)
    }

    fn any_bad(&self, is_bad: impl Fn(&Param<'_>) -> bool) -> bool {
        let mut params = self.iter();
        while let [_semicolon, after @ ..] = params.rest {
            if matches!(trim_start(after).first(), None | Some(b';')) {
                return true;
            }
            let Some(param) = params.next() else { return true };
            let Param { name, value, text } = param;
            let is_quoted = text.ends_with(b"\"");
            let is_readable = value.is_none_or(|value| is_quoted || is_visible(value));
            let is_token = !name.is_empty() && run(name, is_token) == name.len();
            if !is_token || !is_readable || is_bad(&param) {
                return true;
            }
        }
        false
    }

    /// Returns whether a quote or an angle bracket is at a place where the grammar does not allow
    /// it. Such places are a name, an unquoted value, and the beginning of a quoted string that
    /// never ends or that other text follows. Then it is unclear where a parameter must be appended
    /// or replaced.
    fn misquotes(&self) -> bool {
        let mut params = self.iter();
        let strays = |text| memchr3(b'"', b'<', b'>', text).is_some();
        for Param { name, text, .. } in params.by_ref() {
            let value = trim_start(text.get(name.len()..).unwrap_or_default());
            let value = trim_start(value.strip_prefix(b"=").unwrap_or(value));
            if strays(name) || !value.starts_with(b"\"") && strays(value) {
                return true;
            }
        }
        params.misquotes
    }

    /// Returns the parameters in their order.
    #[inline]
    pub fn iter(&self) -> ParamsIter<'a> {
        ParamsIter { rest: self.text, misquotes: false }
    }
}

/// The bytes allowed in a [plain](Params::is_plain) value: those of `token` and `host`, and also
/// `/` and `@`.
static PLAIN_VALUE: [bool; 256] = {
    let mut table = TOKEN;
    let (others, mut i) = (b"[]:/@", 0);
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
};

impl<'a> IntoIterator for Params<'a> {
    type Item = Param<'a>;
    type IntoIter = ParamsIter<'a>;
    fn into_iter(self) -> ParamsIter<'a> {
        self.iter()
    }
}

/// An iterator over the parameters of a list in their order.
#[derive(Clone, Debug)]
pub struct ParamsIter<'a> {
    rest: &'a [u8],
    /// True if a quoted string was never closed, or text followed it.
    misquotes: bool,
}

impl<'a> ParamsIter<'a> {
    /// Returns the text after the last returned parameter, from its semicolon on.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for ParamsIter<'a> {
    type Item = Param<'a>;

    #[inline]
    fn next(&mut self) -> Option<Param<'a>> {
        let begin = run(self.rest, |b| b == b';' || is_space(b));
        let rest = &self.rest[begin..];
        if rest.is_empty() {
            return None;
        }
        let mut end = find(b';', rest).unwrap_or(rest.len());
        let equal = find_by_words(b'=', &rest[..end]).unwrap_or(end);
        let name = trim_end(&rest[..equal]);
        let mut text = trim_end(&rest[..end]);
        let mut value = text.get(equal + 1..).map(trim_start);
        if let Some([b'"', ..]) = value {
            // The semicolon may be inside the quotes, so the quoted string is read first.
            let open = equal + 1 + run(&rest[equal + 1..], is_space);
            let quoted = &rest[open..];
            let close = quoted_end(quoted);
            let after = open + close.unwrap_or(quoted.len());
            end = after + run(&rest[after..], |b| b != b';');
            self.misquotes |= close.is_none() || !trim_start(&rest[after..end]).is_empty();
            text = &rest[..after];
            value = Some(&quoted[1..close.map_or(quoted.len(), |close| close - 1)]);
        }
        self.rest = &rest[end..];
        Some(Param { name, value, text })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params(text: &str) -> Vec<(&str, Option<&str>, &str)> {
        let utf8 = |b| std::str::from_utf8(b).unwrap();
        Params::new(text.as_bytes())
            .iter()
            .map(|p| (utf8(p.name), p.value.map(utf8), utf8(p.text)))
            .collect()
    }

    #[test]
    fn names_values_flags_and_quotes() {
        assert_eq!(
            params(r#"; a = 1;b ;C="x;\"y" ; d="#),
            [
                ("a", Some("1"), "a = 1"),
                ("b", None, "b"),
                ("C", Some(r#"x;\"y"#), r#"C="x;\"y""#),
                ("d", Some(""), "d="),
            ]
        );
    }

    #[test]
    fn invalid_parameters_are_skipped() {
        assert_eq!(params(";;; ;a;;"), [("a", None, "a")]);
        assert_eq!(params(";a=\"1\" junk;b"), [("a", Some("1"), "a=\"1\""), ("b", None, "b")]);
        assert_eq!(params(";a=\"open;b"), [("a", Some("open;b"), "a=\"open;b")]);
        assert_eq!(params(";a=\""), [("a", Some(""), "a=\"")]);
        assert_eq!(params(";=x;b"), [("", Some("x"), "=x"), ("b", None, "b")]);
        assert_eq!(params(""), []);
    }

    #[test]
    fn gaps_names_that_are_no_tokens_and_split_values_are_noticed() {
        let gaps = [";", ";;", ";a;", "; ;a", ";a; \r\n ", ";a=\";\";;b", ";a=\"x\" junk;;b"];
        let names = [";=x", ";a b", ";a;b c=d", "; = ", ";a (b)"];
        let values = [";a=b c", ";a=b\r\n c;d", ";a=\x01", ";a = b\0c", ";a=b\x7f"];
        for text in gaps.into_iter().chain(names).chain(values) {
            assert!(Params::new(text.as_bytes()).has_bad_text(), "{text:?}");
        }
        let quoted = [";a=\";;\"", ";a=\";;", "; a = \"b\\\" c\" ;d"];
        for text in ["", ";a", "; a = 1 ;b", ";a=;b", ";a.b~%c", ";a=é"].into_iter().chain(quoted)
        {
            assert!(!Params::new(text.as_bytes()).has_bad_text(), "{text:?}");
        }
    }

    proptest! {
        /// A list that `is_plain` accepts is accepted by the slower checks too.
        #[test]
        fn plain_parameters_are_complete(text in "(;[a;= \"<>:.%-]{0,6}){0,4}") {
            let params = Params::new(text.as_bytes());
            let is_complete = !params.lacks_value() && !params.misquotes();
            prop_assert!(is_complete || !params.is_plain(), "{text:?}");
            prop_assert_eq!(params.is_complete(), is_complete);
            prop_assert_eq!(params.is_well_formed(), !params.has_bad_text() && !params.misquotes());
        }
    }

    proptest! {
        #[test]
        fn the_first_parameter_is_found_like_the_others(text in "(;[ab]|[=; \"]){0,8}") {
            let params = Params::new(text.as_bytes());
            prop_assert_eq!(params.usual(b";a=", "a"), params.value("a"));
        }
    }

    #[test]
    fn empty_values_are_noticed() {
        for text in [";a=", ";b;a = ;c", ";a=\"\";b=", ";;", ";=x"] {
            assert!(Params::new(text.as_bytes()).lacks_value(), "{text:?}");
        }
        for text in ["", ";a", ";a=\"\"", ";rport=", ";a=b=", ";a==;b"] {
            assert!(!Params::new(text.as_bytes()).lacks_value(), "{text:?}");
        }
    }

    #[test]
    fn quotes_and_brackets_out_of_place_are_noticed() {
        for text in [
            ";a=\"",
            ";b;a = \"x;y",
            ";a=\"x\\\";b",
            ";a=\"x\";b=\"",
            ";a=\"x\" junk;b=\"\"",
            ";a=b\"c",
            ";a\"=b",
            ";a=\"x\" junk\";b",
            ";a=<b;c>",
            ";a>",
        ] {
            assert!(Params::new(text.as_bytes()).misquotes(), "{text:?}");
        }
        for text in ["", ";a", ";a=\"x\"", ";a=\"<x>\\\"\"", "; a = \"x;y\" ;b= \"\""] {
            assert!(!Params::new(text.as_bytes()).misquotes(), "{text:?}");
        }
    }

    #[test]
    fn the_first_of_two_counts_and_case_does_not() {
        let p = Params::new(b";Tag=a;tag=b;lr;empty=");
        assert_eq!(p.get("tAG"), Some(Some(&b"a"[..])));
        assert_eq!(p.get("LR"), Some(None));
        assert_eq!(p.get("ta"), None);
        assert_eq!(p.value("empty"), None);
        assert_eq!(p.value("lr"), None);
        assert!(p.repeats("tag") && !p.repeats("lr") && !p.repeats("x"));
    }
}
