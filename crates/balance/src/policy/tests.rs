//! Tests of each policy, with a few scripted calls and with many calls.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_world::{Purpose, Seed, Timestamp};

use super::*;
use crate::{CallLease, Picker, Pool, TransactionLease, Values, Work, fnv1a};

const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

fn pool(weights: &[u32]) -> Pool {
    let names: Vec<String> = (0..weights.len()).map(|i| format!("b{i}")).collect();
    let backends: Vec<_> = weights
        .iter()
        .enumerate()
        .map(|(i, &w)| (names[i].as_str(), format!("127.0.0.1:{}", 5070 + i).parse().unwrap(), w))
        .collect();
    Pool::new("app", &backends)
}

fn over(pool: Pool, policy: impl Into<Values>) -> Picker {
    Picker::new(pool, policy, Seed(1).stream(Purpose::Balance, 0))
}

fn picker(weights: &[u32], policy: Policy) -> Picker {
    over(pool(weights), policy)
}

/// Returns a key distributed like the keyed hash of a Call-ID.
fn key(call: u64) -> u64 {
    call.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn shares(picker: &mut Picker, picks: u64) -> Vec<u64> {
    let mut shares = vec![0; picker.pool().backends().len()];
    for call in 0..picks {
        shares[picker.pick(NOW, key(call), None).unwrap()] += 1;
    }
    shares
}

/// Runs a request of this kind on `backend`, which answers after `ms`.
fn answered(picker: &Picker, backend: usize, kind: Work, ms: u64) {
    let mut lease = picker.transaction_lease(NOW, backend, kind);
    lease.on_answered(NOW + Duration::from_millis(ms));
}

#[test]
fn rr_follows_the_weights_without_bursts() {
    let mut picker = picker(&[5, 1, 1], Policy::Rr);
    let turn: Vec<_> = (0..7).map(|c| picker.pick(NOW, c, None).unwrap()).collect();
    assert_eq!(turn, [0, 0, 1, 0, 2, 0, 0]);
    assert_eq!(shares(&mut picker, 700), [500, 100, 100]);
}

// Balancers of different versions stand behind one address during an upgrade.
#[test]
fn hash_chooses_alike_in_every_version() {
    let mut picker = picker(&[1, 2, 1], Policy::Hash);
    let picks: String = (0..32u64)
        .map(|c| picker.pick(NOW, key(c), None).unwrap())
        .map(|i| char::from(b'0' + i as u8))
        .collect();
    assert_eq!(picks, "21012121010102201201112201111112");
}

#[test]
fn the_shares_of_idle_back_ends_follow_the_weights() {
    for policy in Policy::ALL {
        let mut even = picker(&[1, 1, 1], policy);
        let shares_even = shares(&mut even, 30_000);
        // The number is binomial with a sigma of 82. The test allows five times sigma.
        assert!(shares_even.iter().all(|s| s.abs_diff(10_000) < 410), "{policy:?} {shares_even:?}");
        // While no transaction is open, there is no load to divide by the weight.
        if matches!(policy, Policy::Cjsq | Policy::Tjsq | Policy::Tlwl | Policy::Rwma) {
            continue;
        }
        let mut weighted = picker(&[1, 2, 1], policy);
        let shares = shares(&mut weighted, 40_000);
        // Sigma is at most 100.
        let is_right = shares[1].abs_diff(20_000) < 500 && shares[0].abs_diff(10_000) < 500;
        assert!(is_right, "{policy:?} {shares:?}");
    }
}

#[test]
fn policies_that_choose_by_a_hash_move_only_the_calls_of_the_one_that_left() {
    for policy in [Policy::Hash, Policy::HashTo, Policy::Fnv, Policy::Rendezvous] {
        let mut picker = picker(&[1, 2, 1, 3], policy);
        let before: Vec<_> = (0..3000).map(|c| picker.pick(NOW, key(c), None).unwrap()).collect();
        picker.backend(1).on_failed(NOW, Duration::from_secs(5));
        let mut heirs = [0; 4];
        for (c, &was) in before.iter().enumerate() {
            let is = picker.pick(NOW, key(c as u64), None).unwrap();
            assert!(is == was && was != 1 || was == 1 && is != 1, "{policy:?}");
            heirs[is] += u32::from(was == 1);
        }
        // Under `fnv` one neighbour gets all of these calls. Under `hash` the other back ends share
        // them.
        let is_shared = heirs.iter().filter(|&&calls| calls > 0).count() == 3;
        assert_eq!(is_shared, policy != Policy::Fnv, "{policy:?} {heirs:?}");
    }
}

#[test]
fn fnv_is_the_remainder_of_the_hash_of_the_call_id() {
    let mut picker = picker(&[1, 3], Policy::Fnv);
    assert_eq!(picker.key(), Key::CallId);
    for call_id in ["a84b4c76e66710", "1@192.0.2.1", "2@192.0.2.1", "3@192.0.2.1"] {
        let hash = fnv1a(call_id.as_bytes());
        // The first back end has one of the four remainders.
        assert_eq!(picker.pick(NOW, hash, None), Some((hash % 4).min(1) as usize));
    }
}

#[test]
fn each_policy_names_its_key() {
    for policy in Policy::ALL {
        let key = match policy {
            Policy::Fnv => Key::CallId,
            Policy::HashTo => Key::Callee,
            _ => Key::Call,
        };
        assert_eq!(picker(&[1], policy).key(), key);
    }
}

#[test]
fn cjsq_counts_calls_tjsq_transactions_and_tlwl_their_work() {
    let shared = pool(&[1, 1]);
    let [mut cjsq, mut tjsq, mut tlwl] =
        [Policy::Cjsq, Policy::Tjsq, Policy::Tlwl].map(|policy| over(shared.clone(), policy));
    let mut picks = || [&mut cjsq, &mut tjsq, &mut tlwl].map(|p| p.pick(NOW, 0, None).unwrap());
    let other = over(shared, Policy::Tlwl);
    let open = |backend, kind, count: usize| -> Vec<TransactionLease> {
        (0..count).map(|_| other.transaction_lease(NOW, backend, kind)).collect()
    };
    let call = other.call_lease(0);
    let byes = open(1, Work::CallEnd, 1);
    assert_eq!(picks(), [1, 0, 0]);
    // 003 §IV: an INVITE weighs as much as 1.75 BYEs. So the back ends have 4 and 5 transactions,
    // but work of 7 and 5.
    let invites = open(0, Work::CallStart, 4);
    let more_byes = open(1, Work::CallEnd, 4);
    assert_eq!(picks(), [1, 0, 1]);
    drop((call, invites, byes));
    assert_eq!(picks()[1..], [0, 0]);
    drop(more_byes);
}

#[test]
fn tlwl_weighs_each_method_as_configured() {
    let entry = Policy::Tlwl.entry();
    let shared = pool(&[1]);
    let picker = over(shared.clone(), entry.values(&[("invite", 2.0), ("register", 0.3)]).unwrap());
    let _leases = [Work::CallStart, Work::Register, Work::CallEnd, Work::Other]
        .map(|kind| picker.transaction_lease(NOW, 0, kind));
    assert_eq!(shared.backends()[0].work(), 200 + 30 + 100 + 100);
    assert_eq!(shared.backends()[0].transactions(), 4);
}

#[test]
fn least_follows_the_weights() {
    for policy in [Policy::Cjsq, Policy::Tjsq, Policy::Tlwl] {
        let shared = pool(&[1, 2]);
        let mut picker = over(shared.clone(), policy);
        let held: Vec<_> = (0..300)
            .map(|c| {
                let i = picker.pick(NOW, c, None).unwrap();
                (picker.call_lease(i), picker.transaction_lease(NOW, i, Work::CallStart))
            })
            .collect();
        let calls = || [0, 1].map(|i| shared.backends()[i].calls());
        assert_eq!(calls(), [100, 200], "{policy:?}");
        drop(held);
        assert_eq!(calls(), [0, 0]);
    }
}

#[test]
fn equal_idle_back_ends_share_evenly() {
    for policy in [Policy::Rr, Policy::Cjsq, Policy::Tjsq, Policy::Tlwl, Policy::Rwma] {
        let mut picker = picker(&[1, 1, 1], policy);
        assert_eq!(shares(&mut picker, 300), [100, 100, 100], "{policy:?}");
    }
}

#[test]
fn rwma_takes_the_smallest_mean_for_the_weight_after_it_has_tried_each() {
    let mut picker = picker(&[1, 1, 2], Policy::Rwma);
    answered(&picker, 0, Work::CallStart, 30);
    answered(&picker, 1, Work::CallStart, 20);
    // The policy ignores the response time of a BYE.
    answered(&picker, 2, Work::CallEnd, 1);
    let at = NOW + Duration::from_millis(40);
    assert_eq!(picker.pick(at, 0, None), Some(2), "it has not been tried");
    answered(&picker, 2, Work::CallStart, 39);
    assert_eq!(picker.pick(at, 0, None), Some(2), "39 ms / 2");
    answered(&picker, 2, Work::CallStart, 50);
    assert_eq!(picker.pick(at, 0, None), Some(1));
    // A back end whose mean is older than `forget_s` is tried again. By then, all means are older.
    let later = NOW + Duration::from_secs(11);
    let picks: Vec<_> = (0..3).map(|c| picker.pick(later, c, None).unwrap()).collect();
    assert_eq!(picks, [2, 0, 1]);
    // The earlier mean does not count in the new one.
    let mut lease = picker.transaction_lease(later, 2, Work::CallStart);
    lease.on_answered(later + Duration::from_millis(7));
    assert_eq!(picker.backend(2).start_response_time(), Duration::from_millis(7));
}

#[test]
fn two_choices_fill_the_fullest_back_end_less_than_one() {
    let fullest = |choices: f64| {
        let shared = pool(&[1; 100]);
        let values = Policy::P2c.entry().values(&[("choices", choices)]).unwrap();
        let mut picker = over(shared.clone(), values);
        let _held: Vec<_> = (0..1000)
            .map(|c| {
                let i = picker.pick(NOW, c, None).unwrap();
                picker.transaction_lease(NOW, i, Work::CallStart)
            })
            .collect();
        shared.backends().iter().map(|b| b.transactions()).max().unwrap()
    };
    let (one, two) = (fullest(1.0), fullest(2.0));
    // Each back end gets ten on average. With two choices, the fullest one gets about ln ln 100 /
    // ln 2 = 2.2 more than that, and with one choice about 8 more.
    assert!(two <= 13 && one >= 16, "{one} {two}");
}

#[test]
fn p2c_passes_over_those_that_are_down_however_many() {
    let shared = pool(&[1; 50]);
    let mut picker = over(shared.clone(), Policy::P2c);
    for backend in &shared.backends()[..49] {
        backend.on_failed(NOW, Duration::from_secs(5));
    }
    assert!((0..100).all(|c| picker.pick(NOW, c, None) == Some(49)));
}

#[test]
fn peak_ewma_avoids_the_slow_one_at_once_and_tries_it_again_later() {
    let shared = pool(&[1, 1]);
    let mut picker = over(shared, Policy::PeakEwma);
    answered(&picker, 0, Work::CallStart, 10);
    answered(&picker, 1, Work::CallStart, 10);
    let at = NOW + Duration::from_millis(10);
    answered(&picker, 0, Work::CallStart, 500);
    let took_slow = |picker: &mut Picker, at| {
        (0..1000).filter(|&c| picker.pick(at, c, None) == Some(0)).count()
    };
    assert_eq!(took_slow(&mut picker, at), 0);
    // The back end is 50 times as slow. It is preferred once the other one has that many open
    // transactions.
    let _open: Vec<_> =
        (0..60).map(|_| picker.transaction_lease(NOW, 1, Work::CallStart)).collect();
    assert_eq!(took_slow(&mut picker, at), 1000);
    drop(_open);
    // After 10 s · ln 50, the average of the slow back end is no higher than that of the other one,
    // which has a new response time.
    let later = at + Duration::from_secs(45);
    let mut fresh = picker.transaction_lease(later, 1, Work::CallStart);
    fresh.on_answered(later + Duration::from_millis(10));
    drop(fresh);
    assert_eq!(took_slow(&mut picker, later), 1000);
}

#[test]
fn a_back_end_that_is_down_is_passed_over_until_it_answers_or_its_pause_ends() {
    for policy in Policy::ALL {
        let shared = pool(&[1, 1]);
        let mut picker = over(shared.clone(), policy);
        shared.backends()[0].on_failed(NOW, Duration::from_secs(5));
        let picks = |picker: &mut Picker, at: Timestamp| -> Vec<usize> {
            (0..64).map(|c: u64| picker.pick(at, c << 56 | c, None).unwrap()).collect()
        };
        assert!(picks(&mut picker, NOW).iter().all(|&i| i == 1), "{policy:?}");
        assert!(picks(&mut picker, NOW + Duration::from_secs(5)).contains(&0), "{policy:?}");
        shared.backends()[0].on_answered(NOW);
        assert!(picks(&mut picker, NOW).contains(&0), "{policy:?}");

        shared.backends()[0].on_failed(NOW, Duration::from_secs(5));
        assert_eq!(picker.pick(NOW, 0, Some(1)), None, "{policy:?}: nobody is left");
    }
}

#[test]
fn metrics_name_the_back_ends_and_count_their_outcomes() {
    let shared = pool(&[1, 1]);
    assert_eq!(shared.name(), "app");
    let mut picker = over(shared.clone(), Policy::Rr);
    for call in 0..5 {
        picker.pick(NOW, call, None);
    }
    picker.backend(1).on_failed(NOW, Duration::from_secs(5));
    picker.backend(1).on_failed(NOW, Duration::from_secs(5));
    let seen = |b: &Arc<Backend>| (b.name().to_owned(), b.assigned(), b.failures());
    let seen: Vec<_> = shared.backends().iter().map(seen).collect();
    assert_eq!(seen, [("b0".into(), 3, 0), ("b1".into(), 2, 2)]);
}

#[test]
fn response_times_are_those_of_the_first_answer_to_each_kind_of_request() {
    let shared = pool(&[1]);
    let picker = over(shared.clone(), Policy::Rr);
    let times = || {
        let backend = &shared.backends()[0];
        (backend.start_response_time().as_millis(), backend.end_response_time().as_millis())
    };
    assert_eq!(times(), (0, 0));
    let mut invite = picker.transaction_lease(NOW, 0, Work::CallStart);
    invite.on_answered(NOW + Duration::from_millis(7));
    invite.on_answered(NOW + Duration::from_millis(9000));
    answered(&picker, 0, Work::CallEnd, 3);
    answered(&picker, 0, Work::Register, 99);
    // A request that is never answered has no response time.
    drop(picker.transaction_lease(NOW, 0, Work::CallStart));
    assert_eq!(times(), (7, 3));
}

enum Held {
    Call(#[allow(dead_code, reason = "it counts while it is held")] CallLease),
    Transaction(TransactionLease),
}

proptest! {
    /// The counts are those of the live leases in any order of taking and dropping, and zero
    /// without leases.
    #[test]
    fn counts_are_those_of_the_live_leases(
        steps in prop::collection::vec((0usize..3, 0usize..4, any::<bool>(), any::<bool>()), 0..200)
    ) {
        let shared = pool(&[1, 1, 1]);
        let learned = Policy::Tlwl.entry().values(&[("learned", 1.0)]).unwrap();
        let picker = over(shared.clone(), learned);
        let mut held: Vec<(usize, u64, u64, Held)> = Vec::new();
        for (backend, kind, take, answer) in steps {
            if take {
                let open = |kind| Held::Transaction(picker.transaction_lease(NOW, backend, kind));
                let mut lease = match kind {
                    0 => (backend, 1, 0, Held::Call(picker.call_lease(backend))),
                    1 => (backend, 0, 175, open(Work::CallStart)),
                    2 => (backend, 0, 100, open(Work::CallEnd)),
                    _ => (backend, 0, 100, open(Work::Other)),
                };
                if let (true, Held::Transaction(open)) = (answer, &mut lease.3) {
                    open.on_answered(NOW);
                }
                held.push(lease);
            } else if !held.is_empty() {
                drop(held.swap_remove(backend % held.len()));
            }
            for (i, b) in shared.backends().iter().enumerate() {
                let mine = held.iter().filter(|h| h.0 == i);
                let sum = mine.fold([0; 3], |[calls, open, work], h| {
                    [calls + h.1, open + u64::from(h.2 > 0), work + h.2]
                });
                prop_assert_eq!([b.calls(), b.transactions(), b.work()], sum);
            }
        }
        drop(held);
        prop_assert!(shared.backends().iter().all(|b| b.calls() == 0 && b.work() == 0));
    }

    /// No back end gets a call beyond its bound, with any weights and any order in which calls end.
    #[test]
    fn rendezvous_keeps_each_back_end_within_its_bound(
        weights in prop::collection::vec(1u32..20, 1..12),
        epsilon in 0.01f64..2.0,
        steps in prop::collection::vec((any::<u64>(), 0u8..4), 1..300),
    ) {
        let shared = pool(&weights);
        let total: u32 = weights.iter().sum();
        let values = Policy::Rendezvous.entry().values(&[("epsilon", epsilon)]).unwrap();
        let mut picker = over(shared.clone(), values);
        let mut held = Vec::new();
        for (key, step) in steps {
            if step == 0 && !held.is_empty() {
                drop(held.swap_remove(key as usize % held.len()));
                continue;
            }
            let i = picker.pick(NOW, key, None).unwrap();
            held.push(picker.call_lease(i));
            let share = held.len() as f64 * f64::from(weights[i]) / f64::from(total);
            let bound = ((1.0 + epsilon) * share).ceil();
            prop_assert!(shared.backends()[i].calls() as f64 <= bound);
        }
    }
}
