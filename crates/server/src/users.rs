//! Converts the users of a configuration to the form of look-ups.

use tidegate_io::Stores;
use tidegate_world::LookupKind;

use crate::config::{Config, User};

/// Makes look-ups find the users of `config`, and no others.
pub(crate) fn serve(stores: &Stores, config: &Config) {
    stores.replace(LookupKind::User, config.user.iter().map(entry));
}

/// Returns the key and the value of a user, as [`LookupKind::User`] has them.
fn entry(User { aor, contacts }: &User) -> (&[u8], String) {
    // RFC 3261 §20.10: without brackets, the parameters of the URI would become parameters of the
    // header field.
    (aor, contacts.iter().map(|uri| format!("<{uri}>\n")).collect())
}
