//! Tests of the comparison of the law in force with a shadow law.

use super::*;
use crate::{Compared, SourceSettings};

/// Returns a gate with fair shares, in which the law and the shadow law are the same.
fn with_the_same_shadow(given: &[(&str, f64)], decide: Decide) -> Gate {
    let settings = settings(given);
    let sources = SourceSettings { fair: true, sources_max: 100, ..SourceSettings::default() };
    let shadow = Some(settings.law);
    Gate::new(Settings { sources, shadow, decide, ..settings }, Seed(1), 0)
}

fn compared(gate: &Gate) -> Compared {
    *gate.shadow().unwrap().compared(Bucket::Session)
}

/// Fair shares reject work of a source that floods although the law admits it, and admit work of
/// the other source although the law rejects it. This is no difference between the laws.
#[test]
fn fair_shares_are_no_difference_between_the_laws() {
    for decide in [Decide::Arrival, Decide::Service] {
        let mut gate = with_the_same_shadow(&[("share", 0.1)], decide);
        let mut over_share = 0;
        for ms in 0..2000 {
            let sources = if ms % 20 == 0 { 2 } else { 1 };
            for source in 1..=sources {
                let sender = Sender { source: Some(source), ..Sender::default() };
                gate.on_arrival(at(ms), 0);
                let reason = match gate.on_new_from(at(ms), &sender, Bucket::Session, 0, None, true)
                {
                    Verdict::Admit(ticket) => gate.on_taken(at(ms), ticket),
                    Verdict::Reject(reason) => Some(reason),
                    Verdict::Absorb => panic!("all are new"),
                };
                over_share += u32::from(reason == Some(Reason::SourceShare));
            }
        }
        assert!(over_share > 0, "{decide:?}");
        let Compared { both, only_real, only_shadow, neither } = compared(&gate);
        assert_eq!((both + neither, only_real, only_shadow), (2100, 0, 0), "{decide:?}");
        assert!((209..=211).contains(&both), "{both} {decide:?}");
    }
}

/// A source that is alone leaves a place in the queue. It would find no room under the shadow law
/// either.
#[test]
fn a_place_in_the_queue_that_is_kept_for_others_is_no_difference_between_the_laws() {
    let mut gate = with_the_same_shadow(&[], Decide::Arrival).with_room(10);
    let sender = Sender { source: Some(1), ..Sender::default() };
    for waiting in [8, 9, 10] {
        gate.on_arrival(at(0), waiting);
        gate.on_new_from(at(0), &sender, Bucket::Session, 0, None, waiting < 10);
    }
    assert_eq!(compared(&gate), Compared { both: 1, neither: 2, ..Compared::default() });
}

#[test]
fn work_that_no_law_judges_passes_the_shadow_law_too() {
    let mut gate = with_the_same_shadow(&[("share", 0.0)], Decide::Arrival);
    let mut ask = |sender: &Sender, admit_next: bool| {
        gate.on_arrival(at(0), 0);
        gate.control.admit_next = admit_next;
        gate.on_new_from(at(0), sender, Bucket::Session, 0, None, true);
        compared(&gate)
    };
    let plain = Sender::default();
    assert_eq!(ask(&plain, false), Compared { neither: 1, ..Compared::default() });
    ask(&Sender { is_admitted: true, ..plain }, false);
    let exempt = Compared { both: 2, neither: 1, ..Compared::default() };
    assert_eq!(ask(&Sender { restricted: true, ..plain }, false), exempt);
    // An exemption by the law in force is a decision of this law only.
    assert_eq!(ask(&plain, true), Compared { only_real: 1, ..exempt });
}
