//! The tags an answerer puts into the To of its responses.

use arrayvec::ArrayVec;

use super::config::NAME_MAX;
use crate::identity::{MARK, Namer, TAG, hex};
use crate::table::Id;

/// The text of a tag.
pub(crate) type Tag = ArrayVec<u8, { NAME_MAX + 1 + MARK }>;

/// Makes tags that begin with one name, and finds in them the calls they were made for.
pub(crate) struct Tags {
    namer: Namer,
    /// The name and a hyphen.
    prefix: Box<[u8]>,
}

impl Tags {
    /// Tags of the answerer called `name`, [`NAME_MAX`] bytes at the most.
    pub fn new(namer: Namer, name: &str) -> Self {
        Self { namer, prefix: format!("{name}-").into_bytes().into() }
    }

    /// The tag of a call: all its responses bear it, and the requests of its dialog.
    pub fn of_call(&self, id: Id) -> Tag {
        self.join(&self.namer.mark(id).text)
    }

    /// The tag of a reply to a request of which nothing is kept.
    // RFC 3261 §8.2.7: "To header tags MUST be generated for responses in a stateless manner -
    // in a manner that will generate the same tag for the same request consistently."
    pub fn of_request(&self, key: u128) -> Tag {
        let mut text = [0; TAG];
        hex(key as u64, &mut text);
        self.join(&text)
    }

    /// The call that a tag was made for, if it is one of ours.
    pub fn call(&self, tag: &[u8]) -> Option<Id> {
        let mark = self.namer.recognise(tag.strip_prefix(&self.prefix[..])?)?;
        Some(mark.id)
    }

    fn join(&self, own: &[u8]) -> Tag {
        self.prefix.iter().chain(own).copied().collect()
    }
}
