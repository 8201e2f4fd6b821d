//! Orders: what an operator has changed in a running process, in the words of its configuration.
//!
//! There are five, told apart by their tables: a whole configuration, of which pools and routes
//! are taken on; a `[admin_state]` of a back end; the question for a `[call]`; the servers that were
//! `found` for domains; and laws.
//!
//! The last is the text of the table `[overload]`, as it would stand in the configuration. Of
//! what is in it `law` with `[overload.params]`, and `[overload.shadow]`, can be changed while
//! calls are served; what is left out stays as it is. Any other key may be given if it says what
//! holds already: for another value the process has to be restarted.
//!
//! What is asked for is read by the reader of the configuration, and wrong in the same ways. What
//! the shards are given is what shall hold from then on, written out in full.

mod asked;
mod json;

use std::path::Path;

use serde_json::Value;
use tidegate_balance::AdminState;
use tidegate_control::Values;
use tidegate_proxy::Overload;

use super::diagnostic::{Diagnostics, Report};
use super::document::Document;
use super::keys::table;
use super::knob::Table;
use super::section::Section;
use super::shape::{Choice, Text};
use super::tables::listen::LISTEN;
use super::tables::overload::OVERLOAD;
use super::written::overload_toml;
use super::{Config, Found, overload};

pub use asked::asked;

static COMMAND: Table = Table {
    header: "",
    name: "",
    count: 0..=1,
    doc: "",
    knobs: Vec::new,
    tables: &[&OVERLOAD],
    has_free_keys: false,
};

static ADMIN_STATE_COMMAND: Table = Table {
    header: "",
    name: "",
    count: 0..=1,
    doc: "",
    knobs: Vec::new,
    tables: &[&ADMIN_STATE],
    has_free_keys: false,
};

static CALL_COMMAND: Table = Table {
    header: "",
    name: "",
    count: 0..=1,
    doc: "",
    knobs: Vec::new,
    tables: &[&CALL],
    has_free_keys: false,
};

table! {
    /// A question about a call.
    pub(super) static CALL: "[call]" 1..=1, Live, [] => CallTable, CallDraft;

    /// The Call-ID.
    call_id: String = Text::new("a Call-ID", |text| Ok(text.to_owned())), Required;
}

table! {
    /// The administrative state of a back end.
    pub(super) static ADMIN_STATE: "[duty]" 1..=1, Live, [] => AdminStateTable, AdminStateDraft;

    /// The name of the back end.
    backend: String = Text::new("the name of a back end", |text| Ok(text.to_owned())), Required;
    /// Its state from now on.
    admin_state("duty"): AdminState = Choice {
        words: &[
            ("enable", AdminState::InService),
            ("drain", AdminState::Draining),
            ("disable", AdminState::Maintenance),
        ],
        reserved: &[],
    }, Required;
}

/// What a shard is given.
#[derive(Debug)]
pub enum Command {
    /// Other laws.
    Laws(Box<Laws>),
    /// What a back end is there for from now on.
    AdminState(String, AdminState),
    /// The configuration whose pools and routes shall hold.
    Reload(Box<Config>),
    /// The servers that the DNS lists for domains in pools.
    Found(Found),
    /// Answer what the call table holds of the call with this Call-ID.
    Call(String),
}

/// The laws that shall be in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Laws {
    /// The one that decides.
    pub law: Values,
    /// The one that looks on.
    pub shadow: Option<Values>,
}

/// Why an order is not given.
#[derive(Debug)]
pub enum Refused {
    /// It is wrong.
    Wrong(Diagnostics),
    /// These keys have another value, which a running process cannot take on.
    Restart(Vec<String>),
}

impl From<Diagnostics> for Refused {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Wrong(diagnostics)
    }
}

/// Returns what was given to a shard: by [`text`], by [`admin_state_text`], by [`call_text`], by
/// [`Found::text`], or a configuration as it was read.
///
/// # Errors
/// When it is not understood: it was written by another version.
pub fn given(text: &[u8]) -> Result<Command, Diagnostics> {
    let path = Path::new("order");
    let document = Document::parse(path, text)?;
    if document.table().contains_key(LISTEN.name) {
        return Ok(Command::Reload(Box::new(Config::parse(path, text)?)));
    }
    if document.table().contains_key(ADMIN_STATE.name) {
        return given_admin_state(&document);
    }
    if document.table().contains_key("found")
        && let Some(found) = str::from_utf8(text).ok().and_then(Found::given)
    {
        return Ok(Command::Found(found));
    }
    if document.table().contains_key(CALL.name) {
        return given_call(&document);
    }
    let mut report = Report::default();
    let root = Section::root(&COMMAND, document.table(), &mut report);
    let read = root.read_one(&OVERLOAD, overload::read, &mut report);
    match read {
        Some(Overload { gate, .. }) if report.is_empty() => {
            Ok(Command::Laws(Box::new(Laws { law: gate.law, shadow: gate.shadow })))
        }
        _ => Err(document.refuse(report)),
    }
}

fn given_admin_state(document: &Document<'_>) -> Result<Command, Diagnostics> {
    let mut report = Report::default();
    let root = Section::root(&ADMIN_STATE_COMMAND, document.table(), &mut report);
    match root.read_one(&ADMIN_STATE, AdminStateDraft::read, &mut report).finish() {
        Some(AdminStateTable { backend, admin_state }) if report.is_empty() => {
            Ok(Command::AdminState(backend, admin_state))
        }
        _ => Err(document.refuse(report)),
    }
}

fn given_call(document: &Document<'_>) -> Result<Command, Diagnostics> {
    let mut report = Report::default();
    let root = Section::root(&CALL_COMMAND, document.table(), &mut report);
    match root.read_one(&CALL, CallDraft::read, &mut report).finish() {
        Some(CallTable { call_id }) if report.is_empty() => Ok(Command::Call(call_id)),
        _ => Err(document.refuse(report)),
    }
}

/// Returns the order by which shards answer what they hold of a call.
pub fn call_text(call_id: &str) -> String {
    // A string of JSON is one of TOML, but for DEL, which TOML wants escaped.
    let quoted = Value::from(call_id).to_string().replace('\u{7f}', "\\u007f");
    format!("[call]\ncall_id = {quoted}\n")
}

/// The order by which a back end gets another duty: `enable`, `drain` or `disable`. It is not
/// checked: [`given`] does that.
pub fn admin_state_text(backend: &str, admin_state: &str) -> String {
    format!("[duty]\nbackend = {}\nduty = {}\n", Value::from(backend), Value::from(admin_state))
}

/// The order by which shards learn what shall hold.
pub fn text(overload: &Overload) -> String {
    overload_toml(overload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duty_is_a_word_about_a_back_end() {
        for (word, means) in [
            ("enable", AdminState::InService),
            ("drain", AdminState::Draining),
            ("disable", AdminState::Maintenance),
        ] {
            let Ok(Command::AdminState(backend, admin_state)) =
                given(admin_state_text("[::1]:5070", word).as_bytes())
            else {
                panic!("{word}")
            };
            assert_eq!((backend.as_str(), admin_state), ("[::1]:5070", means));
        }
        let wrong = given(admin_state_text("a\"b", "rest").as_bytes()).unwrap_err().to_string();
        assert!(wrong.contains("`duty` cannot be `rest`"), "{wrong}");
        assert!(given(b"[duty]\nduty = \"drain\"\n").is_err());
    }

    #[test]
    fn any_call_id_can_be_asked_for() {
        for call_id in ["a@192.0.2.1", "", "\"]\n[duty]\r\t\u{0}\\u", "\u{7f}\u{1f600}é"] {
            let Ok(Command::Call(asked)) = given(call_text(call_id).as_bytes()) else {
                panic!("{call_id:?}")
            };
            assert_eq!(asked, call_id);
        }
        assert!(given(b"[call]\n").is_err());
    }

    #[test]
    fn a_whole_configuration_is_an_order_too() {
        let text = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n[[pool]]\n\
                    name = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1\"\n";
        let Ok(Command::Reload(config)) = given(text.as_bytes()) else { panic!() };
        assert_eq!(config.pool[0].name, "app");
        assert!(given(text.replace("uri", "url").as_bytes()).is_err());
    }
}
