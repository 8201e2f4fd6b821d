//! Makes the users of a configuration available to look-ups.

use tidegate_io::Stores;
use tidegate_world::LookupKind;

use crate::config::{Config, User};

/// Replaces the users that look-ups find with the users of `config`.
pub(crate) fn serve(stores: &Stores, config: &Config) {
    stores.replace(LookupKind::User, config.user.iter().map(entry));
}

/// Returns the address of record and the contacts of a user, as the key and value of a look-up of
/// [`LookupKind::User`].
fn entry(User { aor, contacts }: &User) -> (&[u8], String) {
    // RFC 3261 §20.10: without brackets, the parameters of the URI would become parameters of the
    // header field.
    (aor, contacts.iter().map(|uri| format!("<{uri}>\n")).collect())
}
