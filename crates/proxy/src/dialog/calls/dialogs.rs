//! Dialogs of a call: evidence that a request belongs to it.
//!
//! RFC 3261 §12: "A dialog is identified at each UA with a dialog ID, which consists of a Call-ID
//! value, a local tag and a remote tag." The Call-ID alone proves nothing, because everybody who
//! has seen one message of the call knows it.

/// Maximum number of dialogs of one call that are distinguished. A caller keeps only one of the
/// dialogs that a fork sets up. Requests within other dialogs are verified by their route token.
const DIALOGS_MAX: usize = 2;

/// The dialogs that the responses to a call's INVITE have created, each as a keyed hash of both
/// tags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dialogs {
    /// The hash of each dialog, or 0 where there is no dialog.
    hashes: [u32; DIALOGS_MAX],
    /// Bit set of the dialogs that a 2xx has created and no BYE has ended. A bit stays set while a
    /// BYE is pending.
    confirmed: u8,
    /// Bit set of the dialogs with a pending BYE. A BYE without a response stays pending, even after
    /// its transaction has ended.
    leaving: u8,
    /// Bit set of the dialogs that a BYE has ended.
    ended: u8,
}

impl Dialogs {
    /// Returns whether the call has the dialog with this hash.
    pub(super) fn contains(&self, dialog: u32) -> bool {
        dialog != 0 && self.hashes.contains(&dialog)
    }

    /// Returns whether a response with this status could create another dialog. RFC 3261 §12.1:
    /// "Dialogs are created through the generation of non-failure responses to requests with
    /// specific methods. Within this specification, only 2xx and 101-199 responses with a To tag,
    /// where the request was INVITE, will establish a dialog."
    pub(super) fn want(&self, status: u16) -> bool {
        match status {
            // One early dialog is enough to verify the usual PRACK.
            101..=199 => self.hashes == [0; DIALOGS_MAX],
            200..=299 => (self.confirmed.count_ones() as usize) < DIALOGS_MAX,
            _ => false,
        }
    }

    /// Records the dialog with this hash, 0 for none, which a response to the INVITE creates. If
    /// the call already has [`DIALOGS_MAX`] dialogs, only the dialog of a 2xx is recorded. It
    /// replaces a dialog that no 2xx has confirmed or that a BYE has ended.
    ///
    /// RFC 3261 §13.3.1.4: the callee retransmits its 2xx until the ACK arrives, so a copy may pass
    /// after the BYE was answered. §15.1.1: then "the UAC MUST consider the session and the dialog
    /// terminated". A copy does not create the dialog again. If it did, no BYE would end the call.
    pub(super) fn note(&mut self, dialog: u32, is_confirmed: bool) {
        if dialog == 0 {
            return;
        }
        let same = self.hashes.iter().position(|&hash| hash == dialog);
        let free = || self.hashes.iter().position(|&hash| hash == 0);
        let early = || (0..DIALOGS_MAX).find(|i| is_confirmed && self.confirmed >> i & 1 == 0);
        let Some(i) = same.or_else(free).or_else(early) else { return };
        if same.is_none() {
            self.hashes[i] = dialog;
            self.leaving &= !(1 << i);
            self.ended &= !(1 << i);
        }
        self.confirmed |= (u8::from(is_confirmed) << i) & !self.ended;
    }

    /// Records a BYE within the dialog with this hash.
    pub(super) fn on_bye(&mut self, dialog: u32) {
        self.leaving |= self.bit(dialog);
    }

    /// Returns whether a BYE is pending, and every confirmed dialog has a pending BYE or has ended.
    pub(super) fn are_leaving(&self) -> bool {
        self.leaving != 0 && self.confirmed & !self.leaving == 0
    }

    /// Records that a BYE has not ended the dialog with this hash, and that no other BYE within it
    /// is pending.
    pub(super) fn on_bye_failed(&mut self, dialog: u32) {
        self.leaving &= !self.bit(dialog);
    }

    /// Records that a BYE has ended the dialog with this hash. Returns whether no confirmed dialog
    /// is left. `is_open` returns whether a BYE within the dialog with a hash still waits for its
    /// final response.
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
        let this = hashes.position(|&hash| dialog != 0 && hash == dialog);
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

    #[test]
    fn confirmed_dialogs_replace_ringing_ones() {
        let mut dialogs = Dialogs::default();
        assert!(dialogs.want(180) && !dialogs.want(100) && !dialogs.want(486));
        dialogs.note(1, false);
        assert!(!dialogs.want(180) && dialogs.want(200));
        dialogs.note(2, false);
        dialogs.note(3, false);
        assert!(!dialogs.contains(3) && !dialogs.contains(0));
        dialogs.note(4, true);
        assert!(dialogs.contains(4) && dialogs.contains(2) && !dialogs.contains(1));
        dialogs.note(2, true);
        assert!(!dialogs.want(200));
        dialogs.note(5, true);
        assert!(!dialogs.contains(5) && dialogs.contains(4) && dialogs.contains(2));
    }

    // RFC 3261 §13.2.2.4: the caller gets several 2xx, keeps a dialog and leaves the others.
    #[test]
    fn the_call_ends_with_its_last_dialog() {
        let mut dialogs = Dialogs::default();
        dialogs.note(1, true);
        dialogs.note(2, true);
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
        let mut dialogs = Dialogs::default();
        dialogs.note(1, true);
        dialogs.note(2, true);
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
            let mut dialogs = Dialogs::default();
            dialogs.note(1, true);
            dialogs.note(2, true);
            dialogs.on_bye(1);
            dialogs.on_bye(2);
            assert_eq!(dialogs.on_bye_answered(2, |dialog| dialog == open), is_last);
        }
    }

    // RFC 3261 §13.3.1.4: a callee retransmits its 2xx until it gets the ACK.
    #[test]
    fn a_copy_of_its_2xx_does_not_begin_an_ended_dialog_again() {
        let mut dialogs = Dialogs::default();
        dialogs.note(1, true);
        dialogs.note(2, true);
        dialogs.on_bye(2);
        assert!(!dialogs.on_bye_answered(2, none));
        dialogs.note(2, true);
        assert!(dialogs.contains(2), "a copy of its BYE belongs to it");
        dialogs.on_bye(1);
        assert!(dialogs.are_leaving() && dialogs.on_bye_answered(1, none));
    }

    #[test]
    fn the_replacement_of_an_ended_dialog_lives() {
        let mut dialogs = Dialogs::default();
        dialogs.note(1, true);
        dialogs.note(2, true);
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
