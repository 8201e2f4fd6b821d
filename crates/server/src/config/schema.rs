//! The parts of the configuration reader that also read other TOML files, such as scenarios. Each
//! key is a [`Knob`] in a [`Table`]. A [`Key`] binds a knob to a field of a struct.
//! [`table!`](crate::config_table) defines a table with its keys and the struct for its values. A
//! [`Section`] reads the keys, and a [`Report`] collects the errors. The module also exports the
//! tables of the configuration that other files may contain.

pub use super::diagnostic::{Report, alternatives, nearest, quoted};
pub use super::document::{Document, read};
pub use super::keys::{Entry, Key, Keys, Only, Place, last_part};
pub use super::knob::{Absent, Documented, Knob, Reload, Shape, Table};
pub use super::overload::{read as read_overload, read_compared};
pub use super::reference::describe;
pub use super::section::Section;
pub use super::shape::{
    As, Choice, Flag, List, Named, NamedOr, Placed, Real, Text, Whole, Wrong, micros, millis,
    real_millis, real_seconds, seconds,
};
pub use super::tables::emulate::{EMULATE, EmulateDraft};
pub use super::tables::overload::OVERLOAD;

/// The keys of `[[pool]]` that select back ends and limit their load.
pub mod of_pool {
    pub use super::super::limit::read as learning;
    pub use super::super::pool::selection;
    pub use super::super::tables::limit::POOL_LIMIT;
    pub use super::super::tables::pool::POOL_PARAMS;
}
