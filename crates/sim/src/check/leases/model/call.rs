//! One call of the reference model, with its dialogs and open transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use crate::check::seen::Seen;

/// The time to wait for a response to a request: 64·T1 (RFC 3261 §17.1.1.2, §17.1.2.2).
const PATIENCE: Duration = Duration::from_secs(32);

/// Time for which a balancer keeps a call that rings. An element behind the balancer answers with
/// 408 when its Timer C fires, and retransmits that response for 64·T1 (RFC 3261 §17.2.1).
pub(super) const TRYING_MAX: Duration = Duration::from_secs(190 + 32);

/// The identity of a request at the balancer: the hash of the branch with which the request came,
/// and the method.
pub(super) type Name = (u64, u32);

/// The hashes of both tags of a dialog, in increasing order. `None` stands for an absent tag.
pub(super) type Dialog = [Option<u64>; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The call is neither set up nor being set up.
    Idle,
    Trying,
    Established,
    /// The call is established, and the balancer has forwarded a BYE within each of its dialogs.
    Leaving,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) until: Timestamp,
    /// The back end that must answer the request, or `None` if the request goes to no back end.
    pub(super) at: Option<usize>,
    /// True if the balancer keeps a transaction for the request, with a timer for the response.
    is_stateful: bool,
    /// The dialog that the request is to end, if it is a BYE within the established call.
    pub(super) dialog: Option<Dialog>,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) backend: usize,
    pub(super) phase: Phase,
    /// True if the balancer counts the call at its back end.
    pub(super) is_held: bool,
    /// True if the back end has sent any message of the call.
    pub(super) is_answered: bool,
    /// Time at which the balancer forgets the call.
    pub(super) until: Timestamp,
    /// True if the balancer has forwarded the ACK to the 2xx that set up the call, or a request
    /// that refreshes the session.
    pub(super) is_acknowledged: bool,
    pub(super) open: BTreeMap<Name, Open>,
    /// The tags of both ends, from the responses to the INVITE of the call.
    pub(super) dialogs: BTreeSet<Dialog>,
    /// The dialogs that a 2xx has confirmed.
    confirmed: BTreeSet<Dialog>,
    /// The dialogs for which the balancer has forwarded a BYE that has neither ended them nor was
    /// rejected.
    leaving: BTreeSet<Dialog>,
    /// The dialogs that a BYE has ended.
    ended: BTreeSet<Dialog>,
    /// All transactions of the call so far, whether open or not.
    pub(super) begun: BTreeSet<Name>,
    /// The transactions of the call that have got a final response.
    pub(super) over: BTreeSet<Name>,
}

/// Returns the tags of a message in increasing order, so that both directions of a dialog give the
/// same result.
pub(super) fn dialog(seen: &Seen) -> Dialog {
    let mut tags = [seen.from_tag, seen.to_tag];
    tags.sort_unstable();
    tags
}

impl Call {
    pub(super) fn new(backend: usize, now: Timestamp) -> Self {
        Self {
            backend,
            phase: Phase::Idle,
            is_held: false,
            is_answered: false,
            until: now + PATIENCE,
            is_acknowledged: false,
            open: BTreeMap::new(),
            dialogs: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            leaving: BTreeSet::new(),
            ended: BTreeSet::new(),
            begun: BTreeSet::new(),
            over: BTreeSet::new(),
        }
    }

    pub(super) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established | Phase::Leaving)
    }

    /// Moves the call to another back end. `name` is the request that the balancer has sent to that
    /// back end.
    pub(super) fn move_to(&mut self, backend: usize, name: Name) {
        self.open.remove(&name);
        (self.backend, self.is_held) = (backend, false);
    }

    /// Ends the transactions that were not answered in time, and the dialogs whose BYE was not
    /// answered. Returns the time of the last timer that has changed the counts, or `None` if there
    /// was none.
    pub(super) fn expire(&mut self, now: Timestamp) -> Option<Timestamp> {
        // RFC 3261 §15.1.1: if "no response at all is received for the BYE", the UAC "MUST consider
        // the session and the dialog terminated". A balancer that has waited for the response ends
        // that dialog too, and when the last dialog ends, the call.
        let over = self.open.iter().filter(|(_, open)| open.until <= now);
        let mut over: Vec<_> = over.map(|(&name, &open)| (open.until, name, open)).collect();
        over.sort_unstable_by_key(|&(at, name, _)| (at, name));
        let due = self.open.values().map(|open| open.until);
        // `Model` then removes a call whose time is over, and everything that is counted for it.
        let is_counted = self.is_held || !self.open.is_empty();
        let due = due.chain(is_counted.then_some(self.until));
        let last = due.filter(|at| *at <= now).max();
        for (at, name, open) in over {
            self.open.remove(&name);
            let is_awaited = name.1 == Method::Bye as u32 && open.is_stateful;
            if is_awaited && self.is_established() {
                self.end_dialog(at, open.dialog);
            }
        }
        last
    }

    /// Ends `dialog`, and every other dialog with a forwarded BYE that was not rejected and no
    /// longer waits for a response. Ends the call if no dialog is left.
    pub(super) fn end_dialog(&mut self, at: Timestamp, dialog: Option<Dialog>) {
        let is_unanswered = |dialog: &Dialog| !self.has_open_bye(*dialog);
        let unanswered = self.leaving.iter().copied().filter(is_unanswered);
        let ended: Vec<Dialog> = unanswered.chain(dialog).collect();
        for dialog in ended {
            self.confirmed.remove(&dialog);
            self.leaving.remove(&dialog);
            self.ended.insert(dialog);
        }
        if self.confirmed.is_empty() {
            self.end(at);
        } else {
            self.update_leaving();
        }
    }

    /// Handles the rejection of a BYE within an established call. If both ends have sent a BYE, the
    /// other BYE may still end the dialog.
    pub(super) fn on_bye_rejected(
        &mut self,
        now: Timestamp,
        dialog: Option<Dialog>,
        idle_max: Duration,
    ) {
        if let Some(dialog) = dialog.filter(|dialog| !self.has_open_bye(*dialog)) {
            self.leaving.remove(&dialog);
        }
        self.update_leaving();
        if self.phase == Phase::Established && self.is_acknowledged {
            self.until = now + idle_max;
        }
    }

    /// Returns whether a BYE within this dialog waits for its final response.
    fn has_open_bye(&self, dialog: Dialog) -> bool {
        self.open.values().any(|open| open.dialog == Some(dialog))
    }

    /// Updates the phase of an established call after a change of its dialogs.
    fn update_leaving(&mut self) {
        if self.is_established() {
            let leaves = !self.leaving.is_empty() && self.confirmed.is_subset(&self.leaving);
            self.phase = if leaves { Phase::Leaving } else { Phase::Established };
        }
    }

    pub(super) fn on_request(
        &mut self,
        now: Timestamp,
        name: Name,
        at: Option<usize>,
        is_stateful: bool,
    ) {
        if name.1 == Method::Invite as u32 && !self.is_established() {
            if self.phase == Phase::Idle {
                self.dialogs.clear();
                self.confirmed.clear();
                self.leaving.clear();
                self.ended.clear();
            }
            self.phase = Phase::Trying;
            if at.is_some() {
                (self.is_held, self.is_answered) = (true, false);
            }
        }
        self.open.insert(name, Open { until: now + PATIENCE, at, is_stateful, dialog: None });
        self.begun.insert(name);
    }

    /// Records that a 2xx has confirmed the dialog. If a BYE has ended the dialog, a copy of the
    /// 2xx does not confirm it again.
    pub(super) fn confirm(&mut self, dialog: Dialog) {
        self.dialogs.insert(dialog);
        if self.ended.contains(&dialog) {
            return;
        }
        self.confirmed.insert(dialog);
        self.update_leaving();
    }

    /// Updates the phase of the call after a request, and the time at which the balancer forgets
    /// the call. `dialog` is the dialog to which the request belongs, or `None` if the call does
    /// not have this dialog.
    pub(super) fn touch(
        &mut self,
        now: Timestamp,
        name: Name,
        dialog: Option<Dialog>,
        idle_max: Duration,
    ) {
        let has_method = |method: Method| name.1 == method as u32;
        if let Some(dialog) = dialog.filter(|_| self.is_established()) {
            // A copy of a BYE that has got its final response changes nothing.
            if has_method(Method::Bye) && !self.over.contains(&name) {
                self.leaving.insert(dialog);
                if let Some(open) = self.open.get_mut(&name) {
                    open.dialog = Some(dialog);
                }
                self.update_leaving();
            }
            self.is_acknowledged |= has_method(Method::Ack);
        }
        self.until = match self.phase {
            Phase::Established if dialog.is_some() && self.is_acknowledged => now + idle_max,
            Phase::Established => self.until,
            Phase::Trying if self.is_answered => now + TRYING_MAX,
            _ => now + PATIENCE,
        };
    }

    pub(super) fn end(&mut self, now: Timestamp) {
        (self.phase, self.is_held, self.until) = (Phase::Idle, false, now + PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE_MAX: Duration = Duration::from_secs(3600);
    const BYES: [Name; 2] = [(2, Method::Bye as u32), (3, Method::Bye as u32)];
    const DIALOGS: [Dialog; 2] = [[Some(0), Some(2)], [Some(0), Some(3)]];

    fn second(s: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(s)
    }

    /// Returns a call with two dialogs, and a BYE in each: one at the second 2, one at the second
    /// 3.
    fn left_twice() -> Call {
        let mut call = Call::new(0, second(0));
        call.on_request(second(0), (1, Method::Invite as u32), Some(0), true);
        call.open.clear();
        (call.phase, call.is_acknowledged) = (Phase::Established, true);
        for dialog in DIALOGS {
            call.confirm(dialog);
        }
        for (bye, dialog) in BYES.into_iter().zip(DIALOGS) {
            call.on_request(second(bye.0), bye, Some(0), true);
            call.touch(second(bye.0), bye, Some(dialog), IDLE_MAX);
        }
        assert_eq!((call.phase, call.is_held), (Phase::Leaving, true));
        call
    }

    #[test]
    fn a_bye_without_a_response_ends_only_its_own_dialog() {
        let mut call = left_twice();
        call.expire(second(34));
        assert_eq!((call.phase, call.is_held), (Phase::Leaving, true));
        call.expire(second(35));
        assert_eq!((call.phase, call.is_held), (Phase::Idle, false));
    }

    #[test]
    fn the_rejection_of_a_bye_continues_only_its_own_dialog() {
        let mut call = left_twice();
        call.open.remove(&BYES[0]);
        call.on_bye_rejected(second(4), Some(DIALOGS[0]), IDLE_MAX);
        assert_eq!((call.phase, call.until), (Phase::Established, second(4) + IDLE_MAX));
        call.open.remove(&BYES[1]);
        call.end_dialog(second(5), Some(DIALOGS[1]));
        assert_eq!((call.phase, call.is_held), (Phase::Established, true));
    }

    #[test]
    fn a_dialog_whose_bye_is_not_open_any_more_ends_with_the_other_one() {
        let mut call = left_twice();
        call.open.clear();
        call.end_dialog(second(4), Some(DIALOGS[1]));
        assert_eq!((call.phase, call.is_held), (Phase::Idle, false));
    }
}
