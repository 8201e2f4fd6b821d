use std::time::Duration;

use proptest::prelude::*;

use super::*;

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

fn shares(picker: &mut Picker, picks: u64) -> Vec<u64> {
    let mut shares = vec![0; picker.pool().backends().len()];
    for call in 0..picks {
        // Spread like the keyed hash of a Call-ID is.
        let call = call.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        shares[picker.pick(NOW, call, None).unwrap()] += 1;
    }
    shares
}

#[test]
fn rr_follows_the_weights_without_bursts() {
    let mut picker = Picker::new(pool(&[5, 1, 1]), Policy::Rr);
    let turn: Vec<_> = (0..7).map(|c| picker.pick(NOW, c, None).unwrap()).collect();
    assert_eq!(turn, [0, 0, 1, 0, 2, 0, 0]);
    assert_eq!(shares(&mut picker, 700), [500, 100, 100]);
}

#[test]
fn hash_is_stable_and_moves_only_the_calls_of_the_one_that_left() {
    let mut picker = Picker::new(pool(&[1, 1, 1]), Policy::Hash);
    let key = |c: u64| c.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let before: Vec<_> = (0..3000).map(|c| picker.pick(NOW, key(c), None).unwrap()).collect();
    picker.backend(1).on_failed(NOW, Duration::from_secs(5));
    for (c, &was) in before.iter().enumerate() {
        let is = picker.pick(NOW, key(c as u64), None).unwrap();
        assert!(is == was && was != 1 || was == 1 && is != 1);
    }
}

// Balancers of different versions stand behind one address during an upgrade.
#[test]
fn hash_chooses_alike_in_every_version() {
    let mut picker = Picker::new(pool(&[1, 2, 1]), Policy::Hash);
    let picks: String = (0..32u64)
        .map(|c| picker.pick(NOW, c.wrapping_mul(0x9e37_79b9_7f4a_7c15), None).unwrap())
        .map(|i| char::from(b'0' + i as u8))
        .collect();
    assert_eq!(picks, "21012121010102201201112201111112");
}

#[test]
fn hash_shares_follow_the_weights() {
    let mut picker = Picker::new(pool(&[1, 2, 1]), Policy::Hash);
    let shares = shares(&mut picker, 40_000);
    // Binomial: sigma is at most 100 of 40,000.
    assert!(shares[1].abs_diff(20_000) < 500 && shares[0].abs_diff(10_000) < 500, "{shares:?}");
}

#[test]
fn cjsq_counts_calls_and_tlwl_counts_open_work() {
    let shared = pool(&[1, 1]);
    let mut cjsq = Picker::new(shared.clone(), Policy::Cjsq);
    let mut tlwl = Picker::new(shared, Policy::Tlwl);
    let _call = cjsq.call_lease(0);
    // 003 §IV: a BYE on one weighs less than an INVITE on the other.
    let bye = tlwl.transaction_lease(1, Work::CallEnd);
    assert_eq!(cjsq.pick(NOW, 0, None), Some(1));
    assert_eq!(tlwl.pick(NOW, 0, None), Some(0));
    let _invite = tlwl.transaction_lease(0, Work::CallStart);
    assert_eq!(tlwl.pick(NOW, 0, None), Some(1));
    drop(bye);
    assert_eq!(tlwl.pick(NOW, 0, None), Some(1));
}

#[test]
fn least_follows_the_weights() {
    let shared = pool(&[1, 2]);
    let mut picker = Picker::new(shared.clone(), Policy::Cjsq);
    let held: Vec<_> = (0..300)
        .map(|c| {
            let i = picker.pick(NOW, c, None).unwrap();
            picker.call_lease(i)
        })
        .collect();
    assert_eq!((shared.backends()[0].calls(), shared.backends()[1].calls()), (100, 200));
    drop(held);
    assert_eq!((shared.backends()[0].calls(), shared.backends()[1].calls()), (0, 0));
}

#[test]
fn idle_equals_share_evenly() {
    for policy in [Policy::Rr, Policy::Cjsq, Policy::Tlwl] {
        let mut picker = Picker::new(pool(&[1, 1, 1]), policy);
        assert_eq!(shares(&mut picker, 300), [100, 100, 100], "{policy:?}");
    }
}

#[test]
fn a_back_end_that_is_down_is_passed_over_until_it_answers_or_its_pause_ends() {
    for policy in Policy::ALL {
        let shared = pool(&[1, 1]);
        let mut picker = Picker::new(shared.clone(), policy);
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
fn metrics_name_the_back_ends_and_count_what_became_of_them() {
    let shared = pool(&[1, 1]);
    assert_eq!(shared.name(), "app");
    let mut picker = Picker::new(shared.clone(), Policy::Rr);
    for call in 0..5 {
        picker.pick(NOW, call, None);
    }
    picker.backend(1).on_failed(NOW, Duration::from_secs(5));
    picker.backend(1).on_failed(NOW, Duration::from_secs(5));
    let seen = |b: &Arc<Backend>| (b.name().to_owned(), b.assigned(), b.failures());
    let seen: Vec<_> = shared.backends().iter().map(seen).collect();
    assert_eq!(seen, [("b0".into(), 3, 0), ("b1".into(), 2, 2)]);
}

// Configurations are written with these.
#[test]
fn the_names_stand() {
    assert_eq!(Policy::ALL.map(Policy::name), ["rr", "hash", "cjsq", "tlwl"]);
}

proptest! {
    /// Whatever is taken and dropped, in whatever order: the counts are those of
    /// the leases that live, and zero when none does.
    #[test]
    fn counts_are_those_of_the_living_leases(
        steps in prop::collection::vec((0usize..3, 0usize..4, any::<bool>()), 0..200)
    ) {
        let shared = pool(&[1, 1, 1]);
        let picker = Picker::new(shared.clone(), Policy::Tlwl);
        let mut held: Vec<(usize, u64, u64, Lease)> = Vec::new();
        for (backend, kind, take) in steps {
            if take {
                held.push(match kind {
                    0 => (backend, 1, 0, picker.call_lease(backend)),
                    1 => (backend, 0, 175, picker.transaction_lease(backend, Work::CallStart)),
                    2 => (backend, 0, 100, picker.transaction_lease(backend, Work::CallEnd)),
                    _ => (backend, 0, 100, picker.transaction_lease(backend, Work::Other)),
                });
            } else if !held.is_empty() {
                drop(held.swap_remove(backend % held.len()));
            }
            for (i, b) in shared.backends().iter().enumerate() {
                let mine = held.iter().filter(|h| h.0 == i);
                let (calls, work) = mine.fold((0, 0), |sum, h| (sum.0 + h.1, sum.1 + h.2));
                prop_assert_eq!((b.calls(), b.work()), (calls, work));
            }
        }
        drop(held);
        prop_assert!(shared.backends().iter().all(|b| b.calls() == 0 && b.work() == 0));
    }
}
