//! Limits the bytes sent to an unverified address, in proportion to the bytes received from it.

/// Number of final responses that may be sent for each request even if the budget is used up.
const FINALS: u8 = 2;

/// Maximum number of copies of a request that are served, with the CANCELs and the ACKs of an INVITE.
/// RFC 3261 §17.1.1.2 and §17.1.2.2: a client sends an INVITE at most seven times, and a CANCEL
/// eleven times. §17.2.1: it acknowledges at most eleven copies of a rejection. The network may
/// duplicate some of these messages.
const COPIES_MAX: u8 = 32;

/// The bytes received and sent for a transaction, or for a call that is served without
/// transactions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    received: u32,
    sent: u32,
    /// The kinds of provisional responses sent so far, as a bit set.
    kinds: u8,
    finals: u8,
    /// The number of copies of the last request, without the request itself.
    copies: u8,
}

impl Budget {
    /// Records a request of `length` bytes. Each new request again allows some responses regardless
    /// of the budget (see [`covers`](Self::covers)).
    pub(crate) fn on_request(&mut self, length: usize, is_repeated: bool) {
        self.received = self.received.saturating_add(length as u32);
        self.copies = self.copies.saturating_add(1);
        if !is_repeated {
            (self.kinds, self.finals, self.copies) = (0, 0, 0);
        }
    }

    /// Returns whether more copies of the last request have arrived than a client sends.
    pub(crate) fn is_flooded(&self) -> bool {
        self.copies >= COPIES_MAX
    }

    /// Records that a response with this status is sent.
    pub(crate) fn on_sent(&mut self, status: u16, length: usize) {
        self.sent = self.sent.saturating_add(length as u32);
        match status {
            ..200 => self.kinds |= kind_of(status),
            _ => self.finals = self.finals.saturating_add(1),
        }
    }

    /// Returns whether a response of `length` bytes may be sent to an address that is not verified.
    /// The first response of each provisional kind and the first [`FINALS`] final responses are
    /// always allowed. `ratio` is the allowed number of bytes sent per byte received.
    pub(crate) fn covers(&self, status: u16, length: usize, ratio: u32) -> bool {
        let is_owed = match status {
            ..200 => self.kinds & kind_of(status) == 0,
            _ => self.finals < FINALS,
        };
        is_owed || self.sent as usize + length <= self.received as usize * ratio as usize
    }
}

/// Returns the bit of `kinds` for a provisional response with this status.
fn kind_of(status: u16) -> u8 {
    match status {
        100 => 1,
        180 => 2,
        181 => 4,
        182 => 8,
        183 => 16,
        _ => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owed_bytes_are_sent_and_others_within_the_ratio() {
        let mut budget = Budget::default();
        budget.on_request(100, false);
        let mut send = |status, length| {
            let may = budget.covers(status, length, 3);
            if may {
                budget.on_sent(status, length);
            }
            may
        };
        assert!(send(100, 150) && send(180, 150), "300 of 300");
        assert!(!send(180, 1) && send(183, 1000) && !send(183, 1000));
        assert!(send(200, 1000) && send(200, 1000) && !send(200, 1000));
        budget.on_request(1000, true);
        assert!(!budget.covers(200, 1000, 3) && budget.covers(200, 0, 3));
        budget.on_request(100, false);
        assert!(budget.covers(200, 1000, 3), "that of another request");
    }
}
