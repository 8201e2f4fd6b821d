//! Reads `pool`: the balancing settings of a server.

use tidegate_server::config::schema::{Report, Section, of_pool};

use crate::balancing::Balancing;
use crate::scenario::tables::{POOL, PoolDraft, PoolTable};

/// Reads the table `pool` in `section`. The inner `None` means that the section has no `pool`. The
/// outer `None` means that an error was reported.
pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Option<Balancing>> {
    section.read_optional(&POOL, balancing, report)
}

fn balancing(pool: &Section<'_, '_>, report: &mut Report) -> Option<Balancing> {
    let table = PoolDraft::read(pool, report).finish();
    let learning = pool.read_one(&of_pool::POOL_LIMIT, of_pool::learning, report);
    let PoolTable { policy, calls_max, cps_max } = table?;
    Some(Balancing {
        selection: of_pool::selection(policy, pool, report)?,
        calls_max: calls_max.unwrap_or_default(),
        cps_max: cps_max.unwrap_or_default(),
        learning: learning?.into_inner(),
    })
}
