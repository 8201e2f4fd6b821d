use super::*;

fn load(process: Process, rate_cps: f64, calls: u32) -> Load {
    Load { process, rate_cps, calls, ..Load::default() }
}

fn drawn(load: &Load) -> Vec<Timestamp> {
    Arrivals::new(load, Timestamp::from_nanos(5), Seed(1), 0).collect()
}

/// Returns the seconds after the start.
fn offsets(load: &Load) -> Vec<f64> {
    drawn(load).into_iter().map(|at| at.since(Timestamp::from_nanos(5)).as_secs_f64()).collect()
}

/// Returns the number of calls in each interval of `length_s`.
fn counts(offsets: &[f64], length_s: f64, intervals: usize) -> Vec<f64> {
    let mut counts = vec![0.0; intervals];
    for offset in offsets {
        if let Some(count) = counts.get_mut((offset / length_s) as usize) {
            *count += 1.0;
        }
    }
    counts
}

fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, variance)
}

#[test]
fn uniform_gaps_are_equal_to_the_end() {
    let times = drawn(&load(Process::Uniform, 3.0, 300_001));
    assert_eq!(times.len(), 300_001);
    assert_eq!(times[0], Timestamp::from_nanos(5));
    assert_eq!(times[300_000], Timestamp::from_nanos(100_000_000_000_005));
}

#[test]
fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
    let offsets = offsets(&load(Process::Poisson, 1000.0, 100_000));
    let gaps: Vec<f64> = offsets.windows(2).map(|w| (w[1] - w[0]) * 1000.0).collect();
    let (mean, variance) = mean_and_variance(&gaps);
    // The tolerance is five standard errors: 5 / sqrt(n) for the mean, 5·sqrt(8 / n) for the
    // variance.
    assert!((mean - 1.0).abs() < 0.016, "{mean}");
    assert!((variance - 1.0).abs() < 0.045, "{variance}");
}

#[test]
fn the_duration_ends_the_calls() {
    let ends = |process, profile: &str| {
        let profile = profile.parse().unwrap();
        let duration = Duration::from_millis(999);
        drawn(&Load { profile, duration, ..load(process, 10.0, u32::MAX) }).len()
    };
    assert_eq!(ends(Process::Uniform, "constant"), 10);
    assert_eq!(ends(Process::Uniform, "instant:0.5"), 5);
    // If the rate is zero for good, no more calls are drawn.
    let silent = "0=0.001,1=1000000".parse().unwrap();
    assert_eq!(ends(Process::Mmpp(silent), "instant:100"), 0);
}

#[test]
fn the_end_of_a_profile_ends_the_calls() {
    let profile: Profile = "gradual:5,3,5".parse().unwrap();
    let gradual = |process| Load { profile: profile.clone(), ..load(process, 100.0, u32::MAX) };
    let uniform = offsets(&gradual(Process::Uniform));
    assert_eq!(uniform.len(), 800);
    assert!(uniform.is_sorted() && (12.5..13.0).contains(&uniform[799]));
    for process in [Process::Poisson, Process::Mmpp("1=1,3=1".parse().unwrap())] {
        let offsets = offsets(&gradual(process));
        assert!((600..1000).contains(&offsets.len()), "{}", offsets.len());
        assert!(offsets.is_sorted() && offsets.iter().all(|&at| at < 13.0));
    }
}

#[test]
fn uniform_calls_follow_a_profile_to_the_call() {
    let profile: Profile = "avalanche:1.05,50,0.1".parse().unwrap();
    let offsets = offsets(&Load { profile, ..load(Process::Uniform, 10.0, 100) });
    // Calls 0 to 10 come before the window, and 51 calls in it.
    assert!(offsets[10] < 1.05 && offsets[11] > 1.05, "{offsets:?}");
    assert!(offsets[61] < 1.15 && offsets[62] > 1.15, "{offsets:?}");
    assert!((offsets[99] - 5.0 + 0.1).abs() < 1e-6, "{offsets:?}");
}

/// Checks that the number of calls in each second has a Poisson distribution, with the mean that
/// the curve expects in this second.
#[test]
fn poisson_calls_follow_a_profile() {
    for profile in ["gradual:20,10,20", "flash:10,4,5,8", "steps:0=0.2,20=3,30=0", "instant:15"] {
        let profile: Profile = profile.parse().unwrap();
        let duration = Duration::from_secs(50);
        let load = Load { profile, duration, ..load(Process::Poisson, 2000.0, u32::MAX) };
        let drawn = counts(&offsets(&load), 1.0, 50);
        let mut squares = 0.0;
        let mut seconds = 0;
        for (second, drawn) in drawn.into_iter().enumerate() {
            let until = |s: usize| load.calls_until(Duration::from_secs(s as u64));
            let expected = until(second + 1) - until(second);
            if expected == 0.0 {
                assert_eq!(drawn, 0.0, "{} in second {second}", load.profile);
                continue;
            }
            squares += (drawn - expected).powi(2) / expected;
            seconds += 1;
        }
        // χ² with one degree of freedom for each second: its mean, and its standard deviation. The
        // tolerance is five of these.
        let (mean, deviation) = (f64::from(seconds), (2.0 * f64::from(seconds)).sqrt());
        assert!((squares - mean).abs() < 5.0 * deviation, "{} {squares}", load.profile);
    }
}

/// The index of dispersion for counts over long intervals is known for two states: with rates
/// λ₁, λ₂ and rates of change r₁, r₂ it is `1 + 2·r₁·r₂·(λ₁ − λ₂)² / ((r₁ + r₂)²·(λ₁·r₂ + λ₂·r₁))`
/// (Fischer and Meier-Hellstern, 1993).
#[test]
fn modulated_calls_have_the_mean_asked_for_and_the_dispersion_of_their_states() {
    let mmpp: Mmpp = "1=0.9,6=0.1".parse().unwrap();
    let seconds = 40_000;
    let duration = Duration::from_secs(seconds);
    let load = Load { duration, ..load(Process::Mmpp(mmpp), 100.0, u32::MAX) };
    let offsets = offsets(&load);
    let rate = offsets.len() as f64 / seconds as f64;
    // The mean of the factors is 1.5, weighted by the sojourns.
    let (low, high, r_low, r_high) = (100.0 / 1.5, 600.0 / 1.5, 1.0 / 0.9, 1.0 / 0.1);
    let changes: f64 = r_low + r_high;
    let dispersion = 1.0
        + 2.0 * r_low * r_high * (high - low) * (high - low)
            / (changes * changes * (low * r_high + high * r_low));
    assert!((18.9..19.1).contains(&dispersion), "{dispersion}");
    // The tolerance is five standard errors of the mean: 5·sqrt(dispersion·rate / seconds).
    assert!((rate - 100.0).abs() < 5.0 * (dispersion * 100.0 / seconds as f64).sqrt(), "{rate}");
    // Intervals of 20 s are much longer than a burst of 0.1 s.
    let (mean, variance) = mean_and_variance(&counts(&offsets, 20.0, seconds as usize / 20));
    let ratio = variance / mean / dispersion;
    // The variance of 2,000 intervals has a standard error of sqrt(2 / 2000) = 3.2 %. Five of them
    // are allowed.
    assert!((ratio - 1.0).abs() < 0.16, "{ratio}");
}

#[test]
fn equal_states_are_a_poisson_process() {
    let modulated = load(Process::Mmpp("2=1,2=3".parse().unwrap()), 50.0, 1000);
    let plain = load(Process::Poisson, 50.0, 1000);
    for (modulated, plain) in offsets(&modulated).into_iter().zip(offsets(&plain)) {
        assert!((modulated - plain).abs() < 1e-6, "the same draws: {modulated} {plain}");
    }
}

#[test]
fn a_trace_is_offered_as_it_is_until_calls_or_duration_end_it() {
    let many = Load::of_trace("1\n".repeat(1000).parse().unwrap());
    assert_eq!((many.rate_cps, offsets(&many)), (1000.0, vec![1.0; 1000]));
    let load = Load::of_trace("0.5\n0.5\n2\n3\n".parse().unwrap());
    assert_eq!(offsets(&load), [0.5, 0.5, 2.0, 3.0]);
    assert_eq!(offsets(&Load { calls: 3, ..load.clone() }), [0.5, 0.5, 2.0]);
    let duration = Duration::from_secs(2);
    assert_eq!(offsets(&Load { duration, ..load }), [0.5, 0.5, 2.0]);
}

#[test]
fn the_calls_of_a_trace_are_counted() {
    let load = Load::of_trace("0.5\n0.5\n2\n3\n".parse().unwrap());
    for (ms, calls) in [(0, 0.0), (499, 0.0), (500, 2.0), (1999, 2.0), (2000, 3.0), (9000, 4.0)] {
        assert_eq!(load.calls_until(Duration::from_millis(ms)), calls, "{ms} ms");
    }
}

#[test]
fn a_load_knows_whether_it_ends() {
    let endless = load(Process::Poisson, 1.0, u32::MAX);
    assert!(endless.is_endless());
    let profile = "gradual:1,1,1".parse().unwrap();
    assert!(!Load { profile, ..endless.clone() }.is_endless());
    assert!(!Load { calls: 5, ..endless.clone() }.is_endless());
    assert!(!Load { duration: Duration::from_secs(1), ..endless }.is_endless());
    assert!(!Load::of_trace("1\n".parse().unwrap()).is_endless());
}

#[test]
fn a_load_returns_its_rate_at_any_time() {
    let profile = "gradual:10,10,10".parse().unwrap();
    let load = Load { profile, ..load(Process::Poisson, 50.0, 1) };
    assert_eq!(load.rate_at(Duration::from_secs(5)), 25.0);
    assert_eq!(load.calls_until(Duration::from_secs(15)), 500.0);
}

#[test]
fn a_process_is_formatted_like_its_option() {
    let name = |process: Process| process.to_string();
    assert_eq!(name(Process::Poisson), "poisson");
    assert_eq!(name(Process::Uniform), "uniform");
    assert_eq!(name(Process::Mmpp("1=2,3=4".parse().unwrap())), "mmpp:1=2,3=4");
    assert_eq!(name(Process::Trace("1\n2\n".parse().unwrap())), "trace of 2 calls");
}
