//! Checks the key `backup` of the pools.

use super::diagnostic::Report;
use super::pool;

/// Reports unknown backup pools, and each loop of backup pools once.
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
        let chain: Vec<_> = std::iter::successors(Some(first), |&next| backup(next))
            .take(drafts.len())
            .take_while(|&next| next != i)
            .collect();
        let last = chain.last().copied().unwrap_or(i);
        // A loop is reported at its first pool only.
        if backup(last) != Some(i) || chain.iter().any(|&other| other < i) {
            continue;
        }
        let title = "the `backup` pools form a loop";
        let help = "remove `backup` from one pool of the loop";
        match drafts[last].backup.as_ref().filter(|_| last != i) {
            Some(back) => report.clash(
                title,
                (to.span(), "this `backup` leads to other pools of the loop"),
                (back.span(), "this `backup` leads back to the first one"),
                help,
            ),
            None => report.error(to.span(), title, "this `backup` is its own pool", help),
        }
    }
}
