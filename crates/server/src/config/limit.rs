//! The meaning of `[pool.limit]`.

use tidegate_balance::Learning;
use toml::Spanned;

use super::diagnostic::Report;
use super::section::Section;
use super::tables::limit::Limit;

/// Reads whether and how rates are learned, with the place of the key `learn`. Returns `None` if an
/// error was reported.
pub fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Option<Spanned<Learning>>> {
    let mut limit = Limit::from(&Learning::default());
    let wrong = section.fill(&mut limit, report);
    let Limit { learn, learning } = limit;
    wrong.is_empty().then(|| learn.get_ref().then(|| Spanned::new(learn.span(), learning)))
}
