//! The tags that an answerer writes into the To of its responses.

use arrayvec::ArrayVec;

use super::config::NAME_MAX;
use crate::identity::{MARK, Namer, TAG, hex};
use crate::table::Id;

/// A To-tag: the name of the answerer, a hyphen, and a mark or a hash.
pub(crate) type Tag = ArrayVec<u8, { NAME_MAX + 1 + MARK }>;

/// A generator of the To-tags of one answerer. It also finds the call to which a tag belongs.
pub(crate) struct Tags {
    namer: Namer,
    /// The name of the answerer and a hyphen.
    prefix: Box<[u8]>,
}

impl Tags {
    /// Creates the generator for the answerer called `name`. The name has at most [`NAME_MAX`]
    /// bytes.
    pub fn new(namer: Namer, name: &str) -> Self {
        Self { namer, prefix: format!("{name}-").into_bytes().into() }
    }

    /// Returns the tag of a call. All responses to the call, and all requests in its dialog, have
    /// this tag.
    pub fn of_call(&self, id: Id) -> Tag {
        self.join(&self.namer.mark(id).text)
    }

    /// Returns the tag of a stateless reply. `key` is the fingerprint of the request's transaction,
    /// so a copy of the request gets the same tag.
    // RFC 3261 §8.2.7: "To header tags MUST be generated for responses in a stateless manner -
    // in a manner that will generate the same tag for the same request consistently."
    pub fn of_request(&self, key: u128) -> Tag {
        let mut text = [0; TAG];
        hex(key as u64, &mut text);
        self.join(&text)
    }

    /// Returns the call to which a tag belongs, or `None` if it is not one of our tags.
    pub fn call(&self, tag: &[u8]) -> Option<Id> {
        let mark = self.namer.recognise(tag.strip_prefix(&self.prefix[..])?)?;
        Some(mark.id)
    }

    fn join(&self, own: &[u8]) -> Tag {
        self.prefix.iter().chain(own).copied().collect()
    }
}
