//! No control.
//!
//! Signal: none. Everything is admitted. A message for which the queue has no room is lost or
//! rejected. Beyond its capacity, a server without control works on calls that the callers have
//! given up. With a longer queue, each answer comes later, and more retransmissions are in the
//! queue. This law is the baseline for all other laws.
//!
//! Source: paper 000 §6.5 ("basic"), paper 002 §4.3 ("simple drop").

use crate::{Entry, Law, Values};

pub(crate) static ENTRY: Entry = Entry {
    name: "none",
    summary: "admits everything",
    source: "paper 000 §6.5 (basic), paper 002 §4.3",
    doc: "If the queue is full, further work is rejected or lost. This law is the baseline for all \
          other laws.",
    params: &[],
    check: |_| Ok(()),
    build: |_: &Values| Box::new(None),
};

#[derive(Debug)]
struct None;

impl Law for None {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_without_signals_asks_for_no_ticks_and_is_always_at_rest() {
        let law = (ENTRY.build)(&ENTRY.defaults());
        assert_eq!(law.tick(), Option::None);
        assert!(law.is_at_rest());
    }
}
