//! The Request-URIs of a request that goes to the contacts of a user.

use std::sync::Arc;

/// The Request-URI for each target of a request, in the order in which targets are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contacts(Vec<Arc<[u8]>>);

impl Contacts {
    pub(crate) fn push(&mut self, uri: Arc<[u8]>) {
        self.0.push(uri);
    }

    pub(crate) fn uri(&self, index: usize) -> Option<&[u8]> {
        self.0.get(index).map(|uri| &**uri)
    }

    /// Removes the Request-URI for the target at `index`, to which nothing was sent.
    pub(crate) fn skip(&mut self, index: usize) {
        self.0.remove(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_skipped_leaves_the_others_their_uris() {
        let mut contacts = Contacts::default();
        ["a", "b", "c"].into_iter().for_each(|uri| contacts.push(uri.as_bytes().into()));
        contacts.skip(1);
        assert_eq!((contacts.uri(0), contacts.uri(1)), (Some(&b"a"[..]), Some(&b"c"[..])));
        assert_eq!(contacts.uri(2), None);
    }
}
