//! `[[user]]`.

use tidegate_proxy::CONTACTS_MAX;
use toml::Spanned;

use crate::config::aor::{self, Aor};
use crate::config::keys::table;
use crate::config::shape::{List, Placed, Text};

/// The largest number of users.
const USERS_MAX: usize = 100_000;

table! {
    /// A user and its contacts. A `[[route]]` with `to = "users"` looks users up: a request whose
    /// Request-URI names the user goes to the first contact, which replaces the Request-URI, and to
    /// the next one if that does not respond. A request for a user that is not listed gets 404.
    pub(in crate::config) static USER: "[[user]]" 0..=USERS_MAX, Live, [] => UserTable, UserDraft;

    /// The address of record. The user part is case-sensitive, the domain is not. Port and
    /// parameters of a Request-URI are ignored (RFC 3261 §10.3).
    aor: Aor = Text {
        what: "an address of record, such as `\"sip:alice@example.com\"`",
        parse: aor::aor,
        write: |aor| String::from_utf8_lossy(&aor.key).into_owned(),
    }, Required;
    /// The contacts, in the order in which they are tried: addresses or host names (RFC 3263),
    /// reached over UDP. `[]`: no contact for now; requests get 480.
    contact: Vec<Spanned<String>> = List {
        of: Placed(Text::new(
            "a SIP URI, such as `\"sip:alice@10.0.0.7:5062\"`",
            aor::contact,
        )),
        count_max: CONTACTS_MAX,
    }, Required;
}
