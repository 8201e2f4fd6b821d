//! Divides a caller's load among several callers, each on its own machine.

use std::fmt;

use super::config::CallerConfig;
use super::device::DevicesConfig;
use super::redial::Redial;
use crate::arrival::{Load, Process, Profile};
use crate::connections::ConnectionUse;
use crate::share::Share;

/// The reason why a load cannot be divided among several callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indivisible {
    /// A trace has no rate to divide.
    Trace,
    /// There are fewer calls than callers.
    Calls(u32),
    /// The limit of open calls is less than the number of callers.
    OpenLimit(usize),
}

impl CallerConfig {
    /// Returns the configuration of the caller that offers one part of this load.
    ///
    /// All parts together have the calls, the rates and the users of the whole load. The users of
    /// different parts have different numbers. Each part has at least one user and one connection.
    /// Callers of different parts need the same seed, and [`Share::index`] as their element. Then
    /// the calls of all parts together come at the times of the whole load, and all other random
    /// numbers are independent.
    ///
    /// # Errors
    /// Returns an error if the load is a trace, or if a part would have no calls or could have no
    /// open calls.
    pub fn part(&self, share: Share) -> Result<Self, Indivisible> {
        if share.is_whole() {
            return Ok(self.clone());
        }
        let load = &self.load;
        if matches!(load.process, Process::Trace(_)) {
            return Err(Indivisible::Trace);
        }
        // u32::MAX means no limit, so it is not divided.
        let calls = if load.calls == u32::MAX { load.calls } else { share.count(load.calls) };
        if calls == 0 {
            return Err(Indivisible::Calls(load.calls));
        }
        let open_limit = self.open_limit.map(|limit| share.size(limit));
        if open_limit == Some(0) {
            return Err(Indivisible::OpenLimit(self.open_limit.unwrap_or_default()));
        }
        // Each part needs at least one user and one connection.
        let at_least_one = |total: u32| total.max(share.parts());
        let callers = at_least_one(self.callers);
        Ok(Self {
            load: Load {
                profile: part_of(&load.profile, share),
                rate_cps: share.rate(load.rate_cps),
                calls,
                share,
                ..load.clone()
            },
            callers: share.count(callers),
            first_caller: self.first_caller.saturating_add(share.first(callers)),
            connections: match self.connections {
                ConnectionUse::Shared(count) => {
                    ConnectionUse::Shared(share.count(at_least_one(count)))
                }
                ConnectionUse::Each => ConnectionUse::Each,
            },
            open_max: share.size(self.open_max).max(1),
            open_limit,
            redial: self.redial.map(|redial| Redial {
                waiting_max: share.size(redial.waiting_max).max(1),
                ..redial
            }),
            devices: self
                .devices
                .map(|devices| DevicesConfig { count: share.count(devices.count), ..devices }),
            ..self.clone()
        })
    }
}

/// Returns the profile of one part of the load. Only an avalanche has a number of calls, which is
/// divided. All other profiles are factors on the rate.
fn part_of(profile: &Profile, share: Share) -> Profile {
    match *profile {
        Profile::Avalanche { at, calls, within } => {
            Profile::Avalanche { at, calls: share.count(calls), within }
        }
        _ => profile.clone(),
    }
}

impl fmt::Display for Indivisible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace => f.write_str("a trace cannot be divided: give a rate"),
            Self::Calls(calls) => {
                write!(f, "{calls} calls cannot be divided: each part needs one or more")
            }
            Self::OpenLimit(limit) => write!(
                f,
                "a limit of {limit} open calls cannot be divided: each part needs one or more"
            ),
        }
    }
}

impl std::error::Error for Indivisible {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use tidegate_world::{Pool, Seed, Timestamp, Transport};

    use super::*;
    use crate::caller::Caller;

    fn whole() -> CallerConfig {
        let address = ([127, 0, 0, 1], 5060).into();
        CallerConfig::new(address, address)
    }

    fn parts(whole: &CallerConfig, of: u32) -> Vec<CallerConfig> {
        (0..of).map(|index| whole.part(Share::new(index, of).unwrap()).unwrap()).collect()
    }

    #[test]
    fn the_parts_have_the_calls_the_rate_and_the_users_of_the_whole() {
        let profile = "avalanche:5,10,1".parse().unwrap();
        let load = Load { profile, rate_cps: 300.0, calls: 1000, ..Load::default() };
        let whole = CallerConfig {
            load,
            callers: 8,
            connections: ConnectionUse::Shared(4),
            transport: Transport::Tcp,
            open_max: 100,
            open_limit: Some(20),
            ..whole()
        };
        let parts = parts(&whole, 3);
        let each =
            |value: &dyn Fn(&CallerConfig) -> u32| parts.iter().map(value).collect::<Vec<_>>();
        assert_eq!(each(&|part| part.load.calls), [334, 333, 333]);
        assert!(parts.iter().all(|part| part.load.rate_cps == 100.0 && part.check().is_ok()));
        assert_eq!(each(&|part| part.callers), [3, 3, 2]);
        assert_eq!(each(&|part| part.first_caller), [0, 3, 6]);
        assert_eq!(each(&|part| part.open_max as u32), [34, 33, 33]);
        assert_eq!(each(&|part| part.open_limit.unwrap() as u32), [7, 7, 6]);
        let connections = parts.iter().map(|part| part.connections);
        assert!(connections.eq([2, 1, 1].map(ConnectionUse::Shared)));
        let extra = |part: &CallerConfig| match part.load.profile {
            Profile::Avalanche { calls, .. } => calls,
            _ => panic!("{:?}", part.load.profile),
        };
        assert_eq!(each(&extra), [4, 3, 3]);
    }

    #[test]
    fn each_part_has_a_user_and_a_connection_and_an_endless_load_stays_endless() {
        let load = Load { calls: u32::MAX, ..Load::default() };
        let parts = parts(&CallerConfig { load, ..whole() }, 3);
        for (number, part) in (0..).zip(&parts) {
            assert_eq!((part.callers, part.first_caller, part.load.calls), (1, number, u32::MAX));
            assert_eq!(part.connections, ConnectionUse::Shared(1));
        }
    }

    #[test]
    fn a_load_that_leaves_a_part_without_calls_is_indivisible() {
        let second = Share::new(1, 2).unwrap();
        let one_call = CallerConfig { load: Load { calls: 1, ..Load::default() }, ..whole() };
        assert_eq!(one_call.part(second), Err(Indivisible::Calls(1)));
        let one_open = CallerConfig { open_limit: Some(1), ..whole() };
        assert_eq!(one_open.part(second), Err(Indivisible::OpenLimit(1)));
        let trace = Load::of_trace("0\n1\n".parse().unwrap());
        let trace = CallerConfig { load: trace, ..whole() };
        assert_eq!(trace.part(second), Err(Indivisible::Trace));
        assert_eq!(trace.part(Share::WHOLE), Ok(trace));
    }

    /// Returns the start times of the calls of each part, in nanoseconds from the start.
    fn starts(whole: &CallerConfig, of: u32) -> Vec<Vec<u64>> {
        use tidegate_world::Core;
        let starts = |(element, config): (u32, CallerConfig)| {
            let calls = config.load.calls as usize;
            let mut caller =
                Caller::new(config, Seed(7), element, Timestamp::ZERO, Pool::new()).unwrap();
            let mut starts = Vec::new();
            while starts.len() < calls {
                let now = caller.poll_timeout().expect("a call is due");
                caller.handle_timeout(now);
                while let Some(sent) = caller.poll_transmit() {
                    if sent.bytes.starts_with(b"INVITE") {
                        starts.push(now.as_nanos());
                    }
                }
            }
            starts
        };
        (0..).zip(parts(whole, of)).map(starts).collect()
    }

    #[test]
    fn uniform_calls_of_all_parts_together_are_uniform() {
        let process = Process::Uniform;
        let load = Load { process, rate_cps: 1000.0, calls: 100, ..Load::default() };
        // All packets are first INVITEs, because no timer fires within the 100 ms of the calls.
        let mut all = starts(&CallerConfig { load, ..whole() }, 4).concat();
        all.sort_unstable();
        assert_eq!(all.len(), 100);
        for (number, at) in all.iter().enumerate() {
            assert!(at.abs_diff(number as u64 * 1_000_000) <= 1, "call {number} at {at}");
        }
    }

    /// The parts once drew independent times. So each part began its last call at another time, and
    /// the rate of all parts together fell towards the end.
    #[test]
    fn random_calls_of_all_parts_together_are_those_of_the_whole() {
        let bursts = Process::Mmpp("1=0.01,6=0.01".parse().unwrap());
        for process in [Process::Poisson, bursts] {
            let load = Load { process, rate_cps: 1000.0, calls: 100, ..Load::default() };
            let config = CallerConfig { load, retransmissions: false, ..whole() };
            let alone = starts(&config, 1).concat();
            let mut all = starts(&config, 3).concat();
            all.sort_unstable();
            assert_eq!((alone.len(), all.len()), (100, 100));
            for (at, expected) in all.iter().zip(&alone) {
                assert!(at.abs_diff(*expected) <= 100, "{at} ns instead of {expected} ns");
            }
        }
    }

    #[test]
    fn bursts_come_at_the_same_time_in_all_parts() {
        // There are two states of 1 s on average. All calls come in one of them.
        let process = Process::Mmpp("0=1,1=1".parse().unwrap());
        let load = Load { process, rate_cps: 400.0, calls: 4000, ..Load::default() };
        let config = CallerConfig { load, retransmissions: false, open_max: 4000, ..whole() };
        let tenths = |starts: &Vec<u64>| -> BTreeSet<u64> {
            let tenth = Duration::from_millis(100).as_nanos() as u64;
            starts.iter().map(|at| at / tenth).collect()
        };
        let [one, other]: [BTreeSet<u64>; 2] =
            starts(&config, 2).iter().map(tenths).collect::<Vec<_>>().try_into().unwrap();
        let end = one.last().min(other.last()).copied().unwrap();
        let until_end = |tenths: &BTreeSet<u64>| tenths.range(..end).copied().collect::<Vec<_>>();
        let (one, other) = (until_end(&one), until_end(&other));
        let both = one.iter().filter(|tenth| other.contains(tenth)).count();
        // In a burst, each part starts 40 calls in a tenth of a second. So only a tenth in which a
        // burst begins or ends can have calls of one part and none of the other.
        assert!(
            both * 10 >= one.len() * 9 && both * 10 >= other.len() * 9,
            "{both} {one:?} {other:?}"
        );
        assert!(one.len() < end as usize * 3 / 4, "there are times without calls: {one:?}");
    }
}
