//! The dialogs of a call. A request belongs to the call if it is within one of them.
//!
//! RFC 3261 §12: "A dialog is identified at each UA with a dialog ID, which consists of a Call-ID
//! value, a local tag and a remote tag." The Call-ID alone proves nothing, because everybody who
//! has seen one message of the call knows it.

/// Maximum number of dialogs that are recorded for one call. Usually this is enough, because a
/// caller keeps only one of the dialogs that a forked INVITE creates. Requests within further
/// dialogs are verified by their route token.
const DIALOGS_MAX: usize = 2;

/// The bit in the hash of a dialog that gives the order of its two tags.
pub(crate) const ORDER: u32 = 1 << 31;

/// Returns whether two hashes are those of one dialog, whatever the order of the tags.
fn is_same(one: u32, other: u32) -> bool {
    (one ^ other) & !ORDER == 0
}

/// The dialogs that the responses to a call's INVITE have created, each as a keyed hash of both
/// tags, in the order of the INVITE: the From-tag and the To-tag.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dialogs {
    /// The hash of each dialog, or 0 where there is no dialog.
    hashes: [u32; DIALOGS_MAX],
    /// Bit set of the dialogs that a 2xx has confirmed and no BYE has ended. The bit of a dialog
    /// with a pending BYE is still set.
    confirmed: u8,
    /// Bit set of the dialogs with a pending BYE. A BYE without a response stays pending, even
    /// after its transaction has timed out.
    leaving: u8,
    /// Bit set of the dialogs that a BYE has ended.
    ended: u8,
}

impl Dialogs {
    pub(super) fn contains(&self, dialog: u32) -> bool {
        self.recorded(dialog).is_some()
    }

    /// Returns the hash by which the dialog is recorded. The hash `dialog` may have the tags in the
    /// other order.
    pub(super) fn recorded(&self, dialog: u32) -> Option<u32> {
        self.hashes.into_iter().find(|&hash| dialog != 0 && is_same(hash, dialog))
    }

    /// Returns whether a response with this status could create a dialog that has to be recorded.
    /// RFC 3261 §12.1:
    /// "Dialogs are created through the generation of non-failure responses to requests with
    /// specific methods. Within this specification, only 2xx and 101-199 responses with a To tag,
    /// where the request was INVITE, will establish a dialog."
    pub(super) fn want(&self, status: u16) -> bool {
        match status {
            // One early dialog is enough to verify the PRACK of an ordinary call.
            101..=199 => self.hashes == [0; DIALOGS_MAX],
            200..=299 => (self.confirmed.count_ones() as usize) < DIALOGS_MAX,
            _ => false,
        }
    }

    /// Records the dialog that a response to the INVITE creates. `dialog` is its hash, or 0 if
    /// there is no dialog. `is_confirmed` is true if the response is a 2xx. If [`DIALOGS_MAX`]
    /// dialogs are already recorded, only the dialog of a 2xx is recorded. It replaces a dialog
    /// that no 2xx has confirmed or that a BYE has ended. Returns whether the response is the first
    /// 2xx of its dialog.
    ///
    /// A retransmitted 2xx does not confirm again a dialog that a BYE has ended, because then no
    /// BYE would end the call. RFC 3261 §13.3.1.4: the callee retransmits its 2xx until the ACK
    /// arrives, so a 2xx may pass after the BYE was answered. §15.1.1: after this answer "the UAC
    /// MUST consider the session and the dialog terminated".
    pub(super) fn note(&mut self, dialog: u32, is_confirmed: bool) -> bool {
        if dialog == 0 {
            return false;
        }
        let same = self.hashes.iter().position(|&hash| is_same(hash, dialog));
        let free = || self.hashes.iter().position(|&hash| hash == 0);
        let early = || (0..DIALOGS_MAX).find(|i| is_confirmed && self.confirmed >> i & 1 == 0);
        let Some(i) = same.or_else(free).or_else(early) else { return false };
        if same.is_none() {
            self.hashes[i] = dialog;
            self.leaving &= !(1 << i);
            self.ended &= !(1 << i);
        }
        let confirms = (u8::from(is_confirmed) << i) & !self.ended & !self.confirmed;
        self.confirmed |= confirms;
        confirms != 0
    }

    pub(super) fn on_bye(&mut self, dialog: u32) {
        self.leaving |= self.bit(dialog);
    }

    /// Returns whether a BYE is pending, and every confirmed dialog has a pending BYE or has ended.
    pub(super) fn are_leaving(&self) -> bool {
        self.leaving != 0 && self.confirmed & !self.leaving == 0
    }

    /// Records that the dialog with this hash has no pending BYE any more, because its last pending
    /// BYE was rejected.
    pub(super) fn on_bye_failed(&mut self, dialog: u32) {
        self.leaving &= !self.bit(dialog);
    }

    /// Records that a BYE has ended the dialog with this hash. Returns whether no confirmed dialog
    /// is left. `is_open` returns, for the hash of a dialog, whether a BYE in this dialog still
    /// waits for its final response.
    ///
    /// RFC 3261 §15.1.1: if "no response at all is received for the BYE", "the UAC MUST consider
    /// the session and the dialog terminated". Therefore every other dialog whose pending BYE no
    /// longer waits for its final response ends too. Otherwise a BYE without a response would
    /// prolong a call whose other dialogs have ended.
    pub(super) fn on_bye_answered(&mut self, dialog: u32, is_open: impl Fn(u32) -> bool) -> bool {
        let mut over = self.bit(dialog);
        for (i, &hash) in self.hashes.iter().enumerate() {
            if !is_open(hash) {
                over |= self.leaving & (1 << i);
            }
        }
        self.confirmed &= !over;
        self.ended |= over;
        self.leaving &= !over;
        self.confirmed == 0
    }

    /// Returns the bit of the dialog with this hash, or 0 if the call has no such dialog.
    fn bit(&self, dialog: u32) -> u8 {
        let mut hashes = self.hashes.iter();
        let this = hashes.position(|&hash| dialog != 0 && is_same(hash, dialog));
        this.map_or(0, |i| 1 << i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `false`: no BYE waits for its final response any more.
    fn none(_: u32) -> bool {
        false
    }

    /// Returns the confirmed dialogs 1 and 2.
    fn two() -> Dialogs {
        let mut dialogs = Dialogs::default();
        dialogs.note(1, true);
        dialogs.note(2, true);
        dialogs
    }

    #[test]
    fn confirmed_dialogs_replace_ringing_ones() {
        let mut dialogs = Dialogs::default();
        assert!(dialogs.want(180) && !dialogs.want(100) && !dialogs.want(486));
        dialogs.note(1, false);
        assert!(!dialogs.want(180) && dialogs.want(200));
        dialogs.note(2, false);
        dialogs.note(3, false);
        assert!(!dialogs.contains(3) && !dialogs.contains(0));
        assert!(dialogs.note(4, true) && !dialogs.note(4, true));
        assert!(dialogs.contains(4) && dialogs.contains(2) && !dialogs.contains(1));
        dialogs.note(2, true);
        assert!(!dialogs.want(200));
        dialogs.note(5, true);
        assert!(!dialogs.contains(5) && dialogs.contains(4) && dialogs.contains(2));
    }

    // RFC 3261 §13.2.2.4: the caller gets several 2xx, keeps a dialog and leaves the others.
    #[test]
    fn the_call_ends_with_its_last_dialog() {
        let mut dialogs = two();
        dialogs.on_bye(2);
        assert!(!dialogs.are_leaving() && !dialogs.on_bye_answered(2, none));
        dialogs.on_bye(1);
        assert!(dialogs.are_leaving());
        dialogs.on_bye_failed(1);
        assert!(!dialogs.are_leaving());
        dialogs.on_bye(1);
        assert!(dialogs.on_bye_answered(1, none));
    }

    // RFC 3261 §12: "A dialog is identified at each UA with a dialog ID".
    #[test]
    fn the_response_to_a_bye_changes_only_its_own_dialog() {
        let all = |_: u32| true;
        let mut dialogs = two();
        dialogs.on_bye(1);
        dialogs.on_bye(2);
        dialogs.on_bye_failed(3);
        dialogs.on_bye_failed(0);
        assert!(dialogs.are_leaving() && !dialogs.on_bye_answered(3, all));
        dialogs.on_bye_failed(1);
        assert!(!dialogs.are_leaving() && !dialogs.on_bye_answered(2, all));
        dialogs.on_bye(1);
        assert!(dialogs.are_leaving() && dialogs.on_bye_answered(1, all));
    }

    #[test]
    fn a_dialog_whose_bye_is_not_open_any_more_ends_with_the_other_one() {
        for (open, is_last) in [(1, false), (2, true)] {
            let mut dialogs = two();
            dialogs.on_bye(1);
            dialogs.on_bye(2);
            assert_eq!(dialogs.on_bye_answered(2, |dialog| dialog == open), is_last);
        }
    }

    // RFC 3261 §13.3.1.4: a callee retransmits its 2xx until it gets the ACK.
    #[test]
    fn a_copy_of_its_2xx_does_not_begin_an_ended_dialog_again() {
        let mut dialogs = two();
        dialogs.on_bye(2);
        assert!(!dialogs.on_bye_answered(2, none));
        assert!(!dialogs.note(2, true));
        assert!(dialogs.contains(2), "a copy of its BYE belongs to it");
        dialogs.on_bye(1);
        assert!(dialogs.are_leaving() && dialogs.on_bye_answered(1, none));
    }

    #[test]
    fn the_replacement_of_an_ended_dialog_lives() {
        let mut dialogs = two();
        dialogs.on_bye(2);
        assert!(!dialogs.on_bye_answered(2, none));
        dialogs.note(3, true);
        assert!(dialogs.contains(3) && !dialogs.contains(2));
        dialogs.on_bye(1);
        assert!(!dialogs.on_bye_answered(1, none));
        dialogs.on_bye(3);
        assert!(dialogs.on_bye_answered(3, none));
    }
}
