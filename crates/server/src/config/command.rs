//! Commands to the shards of a running process, in the syntax of the configuration. Most commands
//! are changes that an operator makes.
//!
//! There are six kinds, which the reader distinguishes by their tables:
//!
//! - a whole configuration, of which the shards apply only the pools and routes;
//! - `[duty]`, which sets the administrative state of a back end;
//! - `[unban]`, which ends the bans of a source;
//! - `[call]`, which asks for the call table entries of a call;
//! - `[[found]]`, which lists the servers of domains that the DNS has returned;
//! - `[overload]`, which changes the laws of overload control.
//!
//! An operator who changes laws sends keys of the table `[overload]`. These keys can change the law
//! (`law` and `[overload.params]`) and the shadow law (`[overload.shadow]`) while calls are served.
//! The operator may omit keys that do not change. Any other key must have its current value,
//! because a different value needs a restart. The command that the shards get contains the complete
//! laws.
//!
//! The reader of the configuration also reads commands, and reports the same errors.

mod asked;
mod json;

use std::net::IpAddr;
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
use super::shape::{Choice, Text, Wrong};
use super::tables::listen::LISTEN;
use super::tables::overload::OVERLOAD;
use super::{Config, Found, overload};

pub use asked::asked;

static COMMAND: Table = Table { tables: &[&OVERLOAD], ..Table::EMPTY };
static ADMIN_STATE_COMMAND: Table = Table { tables: &[&ADMIN_STATE], ..Table::EMPTY };
static UNBAN_COMMAND: Table = Table { tables: &[&UNBAN], ..Table::EMPTY };
static CALL_COMMAND: Table = Table { tables: &[&CALL], ..Table::EMPTY };

table! {
    /// A query for the call table entries of a call.
    pub(super) static CALL: "[call]" 1..=1, Live, [] => CallTable, CallDraft;

    /// The Call-ID.
    call_id: String = Text::new("a Call-ID", |text| Ok(text.to_owned())), Required;
}

table! {
    /// The administrative state of a back end.
    pub(super) static ADMIN_STATE: "[duty]" 1..=1, Live, [] => AdminStateTable, AdminStateDraft;

    /// The name of the back end.
    backend: String = Text::new("the name of a back end", |text| Ok(text.to_owned())), Required;
    /// The new state.
    admin_state("duty"): AdminState = Choice {
        words: &[
            ("enable", AdminState::InService),
            ("drain", AdminState::Draining),
            ("disable", AdminState::Maintenance),
        ],
        reserved: &[],
    }, Required;
}

table! {
    /// A source whose bans end.
    pub(super) static UNBAN: "[unban]" 1..=1, Live, [] => UnbanTable, UnbanDraft;

    /// The address of the source.
    address: IpAddr = Text::new(
        "an IP address",
        |text| text.parse::<IpAddr>().map_err(|_| Wrong::from("not an IP address")),
    ), Required;
}

/// A command to a shard.
#[derive(Debug)]
pub enum Command {
    /// Install these laws.
    Laws(Box<Laws>),
    /// Set the administrative state of a back end.
    AdminState(String, AdminState),
    /// End the bans of the source with this address, and of the IPv6 networks that contain the
    /// address.
    Unban(IpAddr),
    /// Apply the pools and routes of this configuration.
    Reload(Box<Config>),
    /// Use these servers as back ends. The DNS lists them for the domains in pools.
    Found(Found),
    /// Publish the call table entries of the call with this Call-ID.
    Call(String),
}

/// The laws of overload control that a command installs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Laws {
    /// The law that decides which new work is admitted.
    pub law: Values,
    /// The shadow law, whose decisions are recorded but have no effect.
    pub shadow: Option<Values>,
}

/// The reason why a command is rejected.
#[derive(Debug)]
pub enum Rejected {
    /// The command contains errors.
    Wrong(Diagnostics),
    /// The command changes keys that need a restart. Each text names one of them in backticks, and
    /// may add its old and new value.
    Restart(Vec<String>),
}

impl From<Diagnostics> for Rejected {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Wrong(diagnostics)
    }
}

/// Reads a command to a shard: the text that [`overload_toml`](super::overload_toml),
/// [`admin_state_text`], [`unban_text`], [`call_text`] or [`Found::text`] returned, or the text of
/// a configuration.
///
/// # Errors
/// Returns an error when the command is invalid. This happens only if another version of Tidegate
/// wrote the command.
pub fn given(text: &[u8]) -> Result<Command, Diagnostics> {
    let path = Path::new("order");
    let document = Document::parse(path, text)?;
    if document.table().contains_key(LISTEN.name) {
        return Ok(Command::Reload(Box::new(Config::parse(path, text)?)));
    }
    if document.table().contains_key(ADMIN_STATE.name) {
        let read = |section: &Section<'_, '_>, report: &mut Report| {
            AdminStateDraft::read(section, report).finish()
        };
        let AdminStateTable { backend, admin_state } =
            read_only(&document, &ADMIN_STATE_COMMAND, read)?;
        return Ok(Command::AdminState(backend, admin_state));
    }
    if document.table().contains_key(UNBAN.name) {
        let read = |section: &Section<'_, '_>, report: &mut Report| {
            UnbanDraft::read(section, report).finish()
        };
        let UnbanTable { address } = read_only(&document, &UNBAN_COMMAND, read)?;
        return Ok(Command::Unban(address));
    }
    if document.table().contains_key("found")
        && let Some(found) = str::from_utf8(text).ok().and_then(Found::given)
    {
        return Ok(Command::Found(found));
    }
    if document.table().contains_key(CALL.name) {
        let read = |section: &Section<'_, '_>, report: &mut Report| {
            CallDraft::read(section, report).finish()
        };
        let CallTable { call_id } = read_only(&document, &CALL_COMMAND, read)?;
        return Ok(Command::Call(call_id));
    }
    let Overload { gate, .. } = read_only(&document, &COMMAND, overload::read)?;
    Ok(Command::Laws(Box::new(Laws { law: gate.law, shadow: gate.shadow })))
}

/// Reads a command whose only table is the inner table of `root`.
fn read_only<T>(
    document: &Document<'_>,
    root: &'static Table,
    read: impl FnOnce(&Section<'_, '_>, &mut Report) -> Option<T>,
) -> Result<T, Diagnostics> {
    let mut report = Report::default();
    let section = Section::root(root, document.table(), &mut report);
    match section.read_one(root.tables[0], read, &mut report) {
        Some(table) if report.is_empty() => Ok(table),
        _ => Err(document.reject(report)),
    }
}

/// Returns whether a command to a shard is an instruction of an operator, and neither a query
/// ([`call_text`]) nor a list of servers ([`Found::text`]).
pub(crate) fn is_by_operator(text: &[u8]) -> bool {
    let others: [&[u8]; 3] = [b"[call]", b"[[found]]", b"found ="];
    !others.iter().any(|start| text.starts_with(start))
}

/// Returns the command that asks the shards for the call table entries of a call.
pub(crate) fn call_text(call_id: &str) -> String {
    // JSON and TOML write strings alike, except that TOML escapes DEL.
    let quoted = Value::from(call_id).to_string().replace('\u{7f}', "\\u007f");
    format!("[call]\ncall_id = {quoted}\n")
}

/// Returns the command that sets the administrative state of the back end `backend`. `admin_state`
/// is `enable`, `drain` or `disable`. [`given`] rejects any other word.
pub fn admin_state_text(backend: &str, admin_state: &str) -> String {
    format!("[duty]\nbackend = {}\nduty = {}\n", Value::from(backend), Value::from(admin_state))
}

/// Returns the command that ends the bans of the source with this address.
pub(crate) fn unban_text(address: IpAddr) -> String {
    format!("[unban]\naddress = \"{address}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duty_command_names_a_back_end_and_its_state() {
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
    fn an_unban_command_names_an_address() {
        for address in ["192.0.2.1", "2001:db8::7"] {
            let address: IpAddr = address.parse().unwrap();
            let Ok(Command::Unban(named)) = given(unban_text(address).as_bytes()) else {
                panic!("{address}")
            };
            assert_eq!(named, address);
        }
        assert!(given(b"[unban]\naddress = \"nobody\"\n").is_err());
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
    fn a_whole_configuration_is_a_command_too() {
        let text = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n[[pool]]\n\
                    name = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1\"\n";
        let Ok(Command::Reload(config)) = given(text.as_bytes()) else { panic!() };
        assert_eq!(config.pool[0].name, "app");
        assert!(given(text.replace("uri", "url").as_bytes()).is_err());
    }
}
