use proptest::prelude::*;

use super::*;

fn curve(profile: &str, rate_cps: f64) -> Curve {
    Curve::new(&profile.parse().unwrap(), rate_cps)
}

/// Returns the factor directly from the definition of each profile, without pieces.
fn factor(profile: &Profile, rate_cps: f64, t: f64) -> f64 {
    match profile {
        Profile::Constant => 1.0,
        Profile::Gradual { up, hold, down } => {
            let [up, hold, down] = [up, hold, down].map(|d| d.as_secs_f64());
            let rise = if up == 0.0 { 1.0 } else { t / up };
            let fall = if t < up + hold {
                1.0
            } else if down == 0.0 {
                0.0
            } else {
                1.0 - (t - up - hold) / down
            };
            rise.min(fall).clamp(0.0, 1.0)
        }
        Profile::Instant { at } => f64::from(u8::from(t >= at.as_secs_f64())),
        Profile::Steps(steps) => {
            let last = steps.iter().rev().find(|step| step.0.as_secs_f64() <= t);
            last.map_or(1.0, |step| step.1)
        }
        Profile::Flash { at, peak, rise, decay } => {
            let [at, rise, decay] = [at, rise, decay].map(|d| d.as_secs_f64());
            match t - at {
                before if before < 0.0 => 1.0,
                rising if rising < rise => 1.0 + (peak - 1.0) * rising / rise,
                after => 1.0 + (peak - 1.0) * (-(after - rise) / decay).exp(),
            }
        }
        Profile::Avalanche { at, calls, within } => {
            let inside = (0.0..within.as_secs_f64()).contains(&(t - at.as_secs_f64()));
            let more = f64::from(*calls) / within.as_secs_f64() / rate_cps;
            1.0 + if inside { more } else { 0.0 }
        }
    }
}

fn profiles() -> impl Strategy<Value = Profile> {
    let time = || (0u32..4000).prop_map(|ms| std::time::Duration::from_millis(ms.into()));
    let length = || (1u32..4000).prop_map(|ms| std::time::Duration::from_millis(ms.into()));
    prop_oneof![
        Just(Profile::Constant),
        (time(), time(), time()).prop_map(|(up, hold, down)| Profile::Gradual { up, hold, down }),
        time().prop_map(|at| Profile::Instant { at }),
        prop::collection::btree_map(time(), prop_oneof![Just(0.0), 0.0..5.0f64], 1..6)
            .prop_map(|steps| Profile::Steps(steps.into_iter().collect())),
        (time(), 1.0..20.0f64, time(), length())
            .prop_map(|(at, peak, rise, decay)| Profile::Flash { at, peak, rise, decay }),
        (time(), 0u32..5000, length()).prop_map(|(at, calls, within)| Profile::Avalanche {
            at,
            calls,
            within
        }),
    ]
}

proptest! {
    /// Compares Λ with a sum over small steps of the profile.
    #[test]
    fn calls_are_the_integral_of_the_rate(profile in profiles(), rate_cps in 0.1..2000.0f64) {
        let curve = Curve::new(&profile, rate_cps);
        const STEP_S: f64 = 0.0005;
        let mut sum = 0.0;
        let mut rate_max = rate_cps;
        for step in 0..24_000 {
            // The time is the middle of a step, because profiles change only at whole milliseconds.
            let t = (f64::from(step) + 0.5) * STEP_S;
            let cps = rate_cps * factor(&profile, rate_cps, t);
            prop_assert!((curve.rate_cps(t) - cps).abs() <= 1e-9 * cps.max(rate_cps), "at {t}");
            rate_max = rate_max.max(cps);
            sum += cps * STEP_S;
            if step % 1000 == 999 {
                let calls = curve.calls_until(t + STEP_S / 2.0);
                prop_assert!((calls - sum).abs() <= 1e-5 * rate_max, "{calls} {sum} at {t}");
            }
        }
    }

    /// Λ⁻¹ rises, and it inverts Λ wherever the rate is above zero.
    #[test]
    fn times_are_the_inverse_of_calls(
        profile in profiles(),
        rate_cps in 0.1..2000.0f64,
        at_s in 0.0..30.0f64,
    ) {
        let curve = Curve::new(&profile, rate_cps);
        let calls = curve.calls_until(at_s);
        match curve.time_of(calls) {
            None => prop_assert!(calls >= curve.total()),
            // The time is the first one with more calls than `calls`. It may be much later if no
            // calls come for a while.
            Some(time_s) => {
                let again = curve.calls_until(time_s);
                prop_assert!((again - calls).abs() <= 1e-9 * (1.0 + calls), "{again} {calls}");
                if curve.rate_cps(at_s) > 0.01 * rate_cps {
                    prop_assert!((time_s - at_s).abs() <= 1e-6, "{time_s} {at_s}");
                }
                let later = curve.time_of(calls + 1.0).unwrap_or(f64::INFINITY);
                prop_assert!(later > time_s);
            }
        }
    }
}

#[test]
fn a_rate_that_stays_at_zero_limits_the_number_of_calls() {
    // The rate rises by 2 calls/s each second to 100 calls/s, stays for 30 s, and falls in the same
    // way: a trapezium.
    let gradual = curve("gradual:50,30,50", 100.0);
    assert_eq!(gradual.total(), 8000.0);
    assert_eq!(gradual.time_of(0.0), Some(0.0));
    assert_eq!(gradual.time_of(2500.0), Some(50.0));
    assert_eq!(gradual.time_of(5500.0), Some(80.0));
    assert!(gradual.time_of(7999.99).is_some_and(|at| (129.0..130.0).contains(&at)));
    assert_eq!(gradual.time_of(8000.0), None);
    assert_eq!(curve("steps:0=1,10=0", 5.0).total(), 50.0);
}

#[test]
fn a_permanent_positive_rate_yields_any_number_of_calls() {
    for profile in ["constant", "instant:10", "steps:0=0,1=2", "flash:1,5,1,1", "avalanche:1,9,1"] {
        assert_eq!(curve(profile, 1.0).total(), f64::INFINITY, "{profile}");
        let time_s = curve(profile, 1.0).time_of(1e12).unwrap();
        assert!((time_s / 1e12 - 1.0).abs() < 0.51, "{profile}: {time_s}");
    }
}

#[test]
fn the_first_call_waits_for_a_rate_above_zero() {
    assert_eq!(curve("instant:10", 7.0).time_of(0.0), Some(10.0));
    assert_eq!(curve("steps:0=0,1=0,2.5=1", 7.0).time_of(0.0), Some(2.5));
}

#[test]
fn an_avalanche_brings_its_calls_within_its_window() {
    let curve = curve("avalanche:10,1000,0.5", 20.0);
    assert_eq!(curve.calls_until(10.0), 200.0);
    assert_eq!(curve.calls_until(10.5), 1210.0);
    assert_eq!(curve.rate_cps(10.2), 2020.0);
}
