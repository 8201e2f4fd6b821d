//! What is held of a call, and of where it is.

use tidegate_world::Timestamp;

use crate::calls::{CallRef, Member};
use crate::endpoint::Endpoint;
use crate::instead::Instead;
use crate::rejection_reason::CALL_TABLE_FULL;

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

    /// There is no room for another call.
    pub(crate) fn full(&self) -> Instead {
        self.counters.calls_refused.add(1);
        Instead::Reply(503, CALL_TABLE_FULL)
    }
}
