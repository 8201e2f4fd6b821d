//! Checks the key `backup` of the pools.

use super::diagnostic::Report;
use super::pool;

/// Reports unknown backup pools and loops of backup pools.
pub(super) fn check(drafts: &[pool::Draft], report: &mut Report) {
    // If the name of a pool is invalid, `backup` may mean this pool. So nothing is checked then.
    let names = drafts.iter().map(|pool| Some(pool.name.as_ref()?.get_ref().as_str()));
    let Some(names) = names.collect::<Option<Vec<_>>>() else { return };
    let backup = |i: usize| {
        let name = drafts[i].backup.as_ref()?.get_ref();
        names.iter().position(|known| known == name)
    };
    for (i, draft) in drafts.iter().enumerate() {
        let Some(to) = &draft.backup else { continue };
        let Some(first) = backup(i) else {
            let written = (to.span(), to.get_ref().as_str());
            report.unknown_name(written, "`backup` names", "pool", &names, "remove `backup`");
            continue;
        };
        let chain = std::iter::successors(Some(first), |&next| backup(next));
        if chain.take(drafts.len()).any(|next| next == i) {
            let help = "remove `backup` from one pool of the loop";
            report.error(
                to.span(),
                "the `backup` pools form a loop",
                "this `backup` leads back to its own pool",
                help,
            );
        }
    }
}
