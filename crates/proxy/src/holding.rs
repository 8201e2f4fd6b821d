//! What is held of a call, and of where it is.

use tidegate_world::{Flow, Timestamp};

use crate::calls::{CallRef, Member};
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::origin::Origin;
use crate::rejection_reason::{CALL_SHARE_USED, CALL_TABLE_FULL};
use crate::shares::Bucket;
use crate::stateful;

impl Endpoint {
    /// The entry of a call, made if there is none.
    pub(crate) fn hold(
        &mut self,
        now: Timestamp,
        call: Option<CallRef>,
        fingerprint: u128,
        identity: u64,
        member: Member,
    ) -> Result<CallRef, Instead> {
        match call {
            Some(call) => {
                self.move_call(call, identity, member);
                Ok(call)
            }
            None => {
                let call =
                    self.calls_mut().insert(now, fingerprint, member).map_err(|_| self.full())?;
                self.note_place(call, member);
                Ok(call)
            }
        }
    }

    pub(crate) fn move_call(&mut self, call: CallRef, identity: u64, member: Member) {
        let has_moved = self.calls_mut().move_to(call, identity, member);
        self.counters.moved.add(has_moved.into());
        if has_moved {
            self.note_place(call, member);
        }
    }

    /// The call is where its back end is now, and stays there.
    pub(crate) fn note_place(&mut self, call: CallRef, member: Member) {
        let backend = self.backend(member);
        if backend.named().is_some() {
            let place = backend.place();
            self.calls_mut().set_place(call, place);
        }
    }

    /// Returns the share of a table that a message on `flow` counts in. Back ends and trusted
    /// sources speak for many users, and have no share.
    pub(crate) fn share_of(&self, flow: &Flow) -> Option<Bucket> {
        match self.addresses().origin(flow) {
            Origin::Member(_) | Origin::Trusted => None,
            Origin::Stranger => Some(Bucket::of(&self.keys().source, flow.remote.ip())),
        }
    }

    /// Counts a call that has just begun, if it is of a source's share.
    pub(crate) fn count_in_share(&mut self, call: CallRef, flow: &Flow) {
        if self.calls().is_scarce()
            && let Some(bucket) = self.share_of(flow)
        {
            self.calls_mut().set_share(call, bucket);
        }
    }

    /// Says whether there is room for a new call of the sender of what came on `flow`.
    pub(crate) fn check_room_for_call(&self, flow: &Flow) -> Result<(), Instead> {
        if !self.calls().has_room() {
            return Err(self.full());
        }
        let has_its_share = self.calls().is_scarce()
            && self.share_of(flow).is_some_and(|bucket| self.calls().is_exhausted(bucket));
        if has_its_share {
            self.counters.calls_over_share.add(1);
            return Err(Instead::Reply(503, CALL_SHARE_USED));
        }
        Ok(())
    }

    /// There is no room for another transaction.
    pub(crate) fn transactions_full(&self) -> Instead {
        self.counters.transactions_refused.add(1);
        stateful::FULL
    }

    /// There is no room for another call.
    pub(crate) fn full(&self) -> Instead {
        self.counters.calls_refused.add(1);
        Instead::Reply(503, CALL_TABLE_FULL)
    }
}
