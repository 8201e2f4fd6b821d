//! `pool`: how a server chooses among those it sends to.

use tidegate_server::config::Selection;
use tidegate_server::config::schema::{Report, Section, of_pool};
use toml::Spanned;

use crate::scenario::tables::{POLICY, POOL};

/// What `pool` in `section` says, if it is there. `None` when something was reported.
pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Option<Selection>> {
    let policy = |pool: &Section<'_, '_>, report: &mut Report| {
        let policy = pool.value(&POLICY, report).map(Spanned::into_inner)?;
        of_pool::selection(policy, pool, report)
    };
    match section.read_all(&POOL, policy, report).pop() {
        None => Some(None),
        Some(policy) => Some(Some(policy?)),
    }
}
