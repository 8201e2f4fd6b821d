use super::*;

fn few(mode: Mode) -> Costs {
    let parameters = Parameters { mode, rounds: 2, messages: 20, batch: 10 };
    measure(&parameters, &|_, _, _| {}).unwrap()
}

fn states(costs: &Costs, kind: Kind, good: bool) -> Vec<(Control, Decision)> {
    let rows = costs.rows.iter().filter(|row| (row.kind, row.good) == (kind, good));
    rows.map(|row| (row.control, row.fate)).collect()
}

#[test]
fn every_kind_is_measured_in_every_state() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let costs = few(mode);
        let kinds = Kind::CALL.into_iter().chain([Kind::Cancel, Kind::Register, Kind::Options]);
        for kind in kinds {
            assert_eq!(states(&costs, kind, true), STATES, "{kind:?}");
            let bad = if kind == Kind::ByeAnswer { &[][..] } else { &STATES[..] };
            assert_eq!(states(&costs, kind, false), bad, "{kind:?}");
        }
        // Callers send this ACK only for calls rejected with 503.
        let acked = [(Control::Idle, Decision::Rejected), (Control::Measuring, Decision::Rejected)];
        assert_eq!(states(&costs, Kind::AckOfRejection, true), acked);
        for row in &costs.rows {
            for cost in [&row.cycle, &row.processing] {
                assert_eq!(cost.rounds_us.len(), 2, "{row:?}");
                assert!((0.0..=cost.median_us).contains(&cost.min_us), "{row:?}");
                // The cost of a turn without messages is subtracted. On a busy machine it may be
                // more than that of a small batch of cheap messages, which then costs 0.
                let is_expensive = row.kind == Kind::Invite && row.fate == Decision::Accepted;
                assert!(cost.mean_us > 0.0 || !is_expensive, "{row:?}");
            }
        }
        assert!(costs.derived(Row::cycle).is_some() && costs.derived(Row::processing).is_some());
    }
}

#[test]
fn an_unexpected_server_behaviour_is_detected() {
    let timed = |kind, rejected| Timed { kind, good: true, messages: 100, rejected, ns: 1.0 };
    assert!(check(&timed(Kind::Invite, 0), false).is_ok());
    assert!(check(&timed(Kind::Invite, 100), true).is_ok());
    assert!(check(&timed(Kind::AckOfRejection, 0), true).is_ok());
    let wrong = check(&timed(Kind::Invite, 50), true).unwrap_err();
    assert!(wrong.starts_with("50 of 100 INVITE were rejected"), "{wrong}");
    assert!(check(&timed(Kind::Bye, 3), false).is_err());
}

#[test]
fn a_cost_has_the_minimum_median_and_mean_of_its_rounds() {
    let mut cost = Cost::default();
    for round in [[4.0, 5.0, 12.0], [1.0, 6.0, 8.0], [2.0, 7.0, 18.0]] {
        cost.add(&round);
    }
    assert_eq!((cost.min_us, cost.median_us), (1.0, 6.0));
    assert!((cost.mean_us - 7.0).abs() < 1e-12);
    cost.add(&[]);
    assert_eq!(cost.rounds_us.len(), 3);
}

#[test]
fn later_shares_are_of_the_messages_of_a_call() {
    let cost = |us| Cost { min_us: us, median_us: us, mean_us: us, rounds_us: Vec::new() };
    let row = |kind, good, fate, us| {
        let control = Control::Idle;
        Row { kind, good, control, fate, cycle: cost(us), processing: cost(us / 2.0) }
    };
    let mut rows = Vec::new();
    for (kind, us) in Kind::CALL.into_iter().zip([20.0, 5.0, 7.0, 6.0, 12.0, 10.0]) {
        rows.push(row(kind, false, Decision::Accepted, 1000.0));
        rows.push(row(kind, true, Decision::Accepted, us));
        rows.push(row(kind, true, Decision::Dropped, us / 5.0));
        rows.push(row(kind, true, Decision::Rejected, us / 2.0));
    }
    let mut costs = Costs {
        machine: Machine::this(),
        transactions: true,
        rounds: 1,
        messages: 1,
        batch: 1,
        rows,
        gate: Gate::default(),
    };
    assert!(costs.derived(Row::cycle).is_none(), "there is no ACK of a 503");
    costs.rows.push(row(Kind::AckOfRejection, true, Decision::Rejected, 2.0));
    let derived = costs.derived(Row::cycle).unwrap();
    assert_eq!((derived.call_us, derived.rejection_us, derived.drop_us), (60.0, 12.0, 4.0));
    assert_eq!(derived.dropping, Model { accepted_us: 10.0, dropped_us: 2.0 });
    assert_eq!(derived.rejecting, Model { accepted_us: 10.0, dropped_us: 2.0 });
    assert_eq!(costs.derived(Row::processing).unwrap().call_us, 30.0);
}
