//! Message texts with gaps, such as `{call_id}`, for values that differ between messages. A text is
//! parsed once and then copied with the gaps filled.

use tidegate_world::Buffer;

/// The values for the gaps of a [`Template`] in one message.
#[derive(Clone, Copy, Default)]
pub(crate) struct Values<'a> {
    /// Request-URI.
    pub uri: &'a [u8],
    /// Branch parameter of our Via.
    pub branch: &'a [u8],
    /// Route header lines, each with its CRLF.
    pub routes: &'a [u8],
    /// The number of the calling user or the device, or the suffix `-N` of a registrant's user.
    pub caller: &'a [u8],
    /// The tag in our From header.
    pub tag: &'a [u8],
    /// Value of the From header.
    pub from: &'a [u8],
    /// Value of the To header.
    pub to: &'a [u8],
    /// Value of the Call-ID header.
    pub call_id: &'a [u8],
    /// Number in the CSeq header.
    pub cseq: &'a [u8],
}

#[derive(Clone, Copy)]
enum Gap {
    Uri,
    Branch,
    Routes,
    Caller,
    Tag,
    From,
    To,
    CallId,
    CSeq,
    End,
}

impl Gap {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "uri" => Self::Uri,
            "branch" => Self::Branch,
            "routes" => Self::Routes,
            "caller" => Self::Caller,
            "tag" => Self::Tag,
            "from" => Self::From,
            "to" => Self::To,
            "call_id" => Self::CallId,
            "cseq" => Self::CSeq,
            _ => return None,
        })
    }
}

/// A message text of alternating literal pieces and gaps.
pub(crate) struct Template(Vec<(Box<[u8]>, Gap)>);

impl Template {
    /// Parses `text`, in which a name in braces is a gap. Fills each `fixed` gap permanently. Lines
    /// end with a bare LF, which becomes CRLF.
    ///
    /// # Panics
    /// Panics if a gap is neither fixed nor one of [`Values`]. The texts are part of this program,
    /// so this is a bug.
    pub fn new(text: &str, fixed: &[(&str, &str)]) -> Self {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').expect("a gap is closed");
            literal.push_str(before);
            rest = after;
            match fixed.iter().find(|(fixed_name, _)| *fixed_name == name) {
                Some((_, value)) => literal.push_str(value),
                None => {
                    let gap = Gap::named(name).expect("a gap has a value");
                    pieces.push((on_the_wire(&literal), gap));
                    literal.clear();
                }
            }
        }
        literal.push_str(rest);
        pieces.push((on_the_wire(&literal), Gap::End));
        Self(pieces)
    }

    /// Appends the text with `values` in its gaps. Returns `false` if the text does not fit into
    /// the buffer.
    #[must_use]
    pub fn fill(&self, values: &Values<'_>, out: &mut Buffer) -> bool {
        self.0.iter().all(|(literal, gap)| {
            let value = match gap {
                Gap::Uri => values.uri,
                Gap::Branch => values.branch,
                Gap::Routes => values.routes,
                Gap::Caller => values.caller,
                Gap::Tag => values.tag,
                Gap::From => values.from,
                Gap::To => values.to,
                Gap::CallId => values.call_id,
                Gap::CSeq => values.cseq,
                Gap::End => b"",
            };
            out.push(literal).is_ok() && out.push(value).is_ok()
        })
    }
}

fn on_the_wire(text: &str) -> Box<[u8]> {
    text.replace('\n', "\r\n").into_bytes().into_boxed_slice()
}
