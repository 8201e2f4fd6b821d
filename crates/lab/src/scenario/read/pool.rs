//! Reads `pool`: the balancing settings of a server.

use tidegate_server::config::schema::{Report, Section, of_pool};

use crate::balancing::Balancing;
use crate::scenario::tables::{CALLS_MAX, CPS_MAX, POLICY, POOL};

/// Reads the table `pool` in `section`. The inner `None` means that the section has no `pool`. The
/// outer `None` means that an error was reported.
pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Option<Balancing>> {
    section.read_optional(&POOL, balancing, report)
}

fn balancing(pool: &Section<'_, '_>, report: &mut Report) -> Option<Balancing> {
    let calls_max = pool.given_plain(&CALLS_MAX, report);
    let cps_max = pool.given_plain(&CPS_MAX, report);
    let learning = pool.read_one(&of_pool::POOL_LIMIT, of_pool::learning, report);
    let policy = pool.plain(&POLICY, report)?;
    Some(Balancing {
        selection: of_pool::selection(policy, pool, report)?,
        calls_max: calls_max.unwrap_or_default(),
        cps_max: cps_max.unwrap_or_default(),
        learning: learning?.into_inner(),
    })
}
