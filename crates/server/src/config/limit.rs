//! Reads `[pool.limit]`: the settings for learned limits of back ends.

use tidegate_balance::Learning;
use toml::Spanned;

use super::diagnostic::Report;
use super::section::Section;
use super::tables::limit::Limit;

/// Reads the settings for learned limits, with the position of the key `learn` in the file. Returns
/// `None` if an error was reported.
pub fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Spanned<Learning>> {
    let mut limit = Limit::from(&Learning::default());
    let wrong = section.fill(&mut limit, report);
    wrong.is_empty().then(|| Spanned::new(limit.learn.span(), limit.learning()))
}
