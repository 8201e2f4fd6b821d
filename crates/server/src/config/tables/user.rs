//! `[[user]]`.

use tidegate_proxy::CONTACTS_MAX;

use crate::config::aor::{self, Aor};
use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{List, Text};

/// The largest number of users.
const USERS_MAX: usize = 100_000;

pub static USER: Table = Table {
    header: "[[user]]",
    name: "user",
    count: 0..=USERS_MAX,
    doc: "A user and its contacts. A `[[route]]` with `to = \"users\"` looks users up: a request \
          whose Request-URI names the user goes to the first contact, which replaces the \
          Request-URI, and to the next one if that does not respond. A request for a user that is \
          not listed gets 404.",
    knobs: &[&AOR, &CONTACT],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub static AOR: Knob<Text<Aor>> = Knob {
    name: "aor",
    shape: Text {
        what: "an address of record, such as `\"sip:alice@example.com\"`",
        parse: aor::aor,
    },
    absent: Absent::Required,
    doc: "The address of record. The user part is case-sensitive, the domain is not. Port and \
          parameters of a Request-URI are ignored (RFC 3261 §10.3).",
};

pub static CONTACT: Knob<List<Text<String>>> = Knob {
    name: "contact",
    shape: List {
        of: Text { what: "a SIP URI, such as `\"sip:alice@10.0.0.7:5062\"`", parse: aor::contact },
        count_max: CONTACTS_MAX,
    },
    absent: Absent::Required,
    doc: "The contacts, in the order in which they are tried: addresses or host names (RFC 3263), \
          reached over UDP. `[]`: no contact for now; requests get 480.",
};
