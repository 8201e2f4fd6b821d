//! What a TOML file may hold and how it is read, for files beside the configuration: each key
//! is a [`Knob`] in a [`Table`]; a [`Section`] reads them; what is wrong goes into a [`Report`].
//! Tables of the configuration that other files share are here too.

pub use super::diagnostic::{Report, alternatives, nearest, quoted};
pub use super::document::{Document, read};
pub use super::knob::{Absent, Documented, Knob, Shape, Table};
pub use super::overload::{read as read_overload, read_emulate};
pub use super::reference::describe;
pub use super::section::Section;
pub use super::shape::{Choice, Flag, List, NamedOr, Real, Text, Whole, Wrong};
pub use super::tables::{EMULATE, OVERLOAD};

/// What `[[pool]]` says of who gets a new request, and how many.
pub mod of_pool {
    pub use super::super::limit::read as learning;
    pub use super::super::pool::selection;
    pub use super::super::tables::{POOL_LIMIT, POOL_PARAMS};
}
