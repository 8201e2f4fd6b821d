//! `[[user]]`.

use tidegate_proxy::CONTACTS_MAX;
use toml::Spanned;

use crate::config::aor::{self, Aor};
use crate::config::keys::table;
use crate::config::shape::{List, Placed, Text};

/// The largest number of users.
const USERS_MAX: usize = 100_000;

table! {
    /// A user and the user's contacts. A `[[route]]` with `to = "users"` looks up the user in the
    /// Request-URI. Tidegate sends the request to the user's first contact and writes that contact
    /// into the Request-URI. If the first contact does not respond, Tidegate tries the next one. A
    /// request for a user that is not listed gets 404.
    pub(in crate::config) static USER: "[[user]]" 0..=USERS_MAX, Live, [] => UserTable, UserDraft;

    /// The address of record. The user part is case-sensitive, and the domain is not. Tidegate
    /// ignores the port and the parameters of a Request-URI (RFC 3261 §10.3).
    aor: Aor = Text {
        what: "an address of record, such as `\"sip:alice@example.com\"`",
        parse: aor::aor,
        write: |aor| String::from_utf8_lossy(&aor.key).into_owned(),
    }, Required;
    /// The contacts, in the order in which Tidegate tries them. The host of a contact is an IP
    /// address or a host name (RFC 3263). Tidegate reaches contacts over UDP. `[]`: the user has no
    /// contact at present, and requests get 480.
    contact: Vec<Spanned<String>> = List {
        of: Placed(Text::new(
            "a SIP URI, such as `\"sip:alice@10.0.0.7:5062\"`",
            aor::contact,
        )),
        count_max: CONTACTS_MAX,
    }, Required;
}
