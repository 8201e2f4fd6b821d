//! Reconstructs the callers and callees of a recording, as far as the recording shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_agent::{Behaviour, Mix, Trace};
use tidegate_server::config::Config;
use tidegate_world::Timestamp;

use super::observer::{Call, Observer};

/// Maximum number of addresses of simulated callers. The calls from all further recorded addresses
/// come from the highest of these addresses.
const CALLERS_MAX: usize = 256;

/// The calls from one address.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// The callers' address.
    pub address: SocketAddr,
    /// The proxy's address to which the calls go.
    pub target: SocketAddr,
    /// Request-URI of the calls.
    pub uri: String,
    /// Start times of the calls, relative to [`Timestamp::ZERO`].
    pub moments: Trace,
}

/// The callers and callees of a recording, as the simulation imitates them.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The calls of the callers, by address.
    pub crowds: Vec<Crowd>,
    /// Addresses of the callees.
    pub callees: Vec<SocketAddr>,
    /// Observed behaviours of callees, with the number of calls for each.
    pub behaviours: Vec<(Behaviour, usize)>,
    /// Median time from the forwarded INVITE to the 2xx of the callee, or `None` if no such time
    /// was observed. With `None`, simulated callees answer without delay.
    pub ring: Option<Duration>,
    /// True if the simulated callees send a 180. They do if callees rang in at least half of the
    /// recorded calls that they answered or rejected, or if there is no such call.
    pub rings: bool,
    /// Median time after which callers cancel a call, or `None` if it could not be estimated.
    pub patience: Option<Duration>,
    /// Median duration of the calls that ended, or `None` if no call ended. With `None`, simulated
    /// calls do not end.
    pub hold: Option<Duration>,
    /// Addresses of the proxy: its listeners, and each address at which a call arrived.
    pub proxy: Vec<SocketAddr>,
    /// Number of recorded calls that are not simulated because a callee or the proxy itself started
    /// them.
    pub left_out: usize,
}

impl Scene {
    /// Reconstructs the scene from the calls that `observer` observed until `end`. Returns `None`
    /// if no call started.
    pub fn of(
        observer: &Observer,
        config: &Config,
        listeners: &[SocketAddr],
        end: Timestamp,
    ) -> Option<Self> {
        let backends =
            config.pool.iter().flat_map(|pool| &pool.backends).filter_map(|b| b.endpoint.address());
        let calls = observer.calls();
        let proxy: BTreeSet<_> =
            listeners.iter().copied().chain(calls.iter().map(|call| call.local)).collect();
        let callees: BTreeSet<_> = backends.filter(|address| !proxy.contains(address)).collect();
        let (outward, inward): (Vec<_>, Vec<_>) = calls
            .iter()
            .partition(|call| callees.contains(&call.caller) || proxy.contains(&call.caller));
        let crowds = crowds(observer, &inward, end);
        let asked: Vec<_> = inward.iter().filter(|call| call.answered.is_some()).collect();
        let rang = asked.iter().filter(|call| call.rang).count();
        let ring = |call: &&&Call| {
            let (status, at) = call.answered?;
            let began = call.forwarded?;
            (status < 300).then(|| at.since(began))
        };
        let held = |call: &&Call| {
            let (_, from) = call.decided.filter(|(status, _)| *status < 300)?;
            Some(call.ended?.since(from))
        };
        let ring = median(asked.iter().filter_map(ring));
        (!crowds.is_empty()).then(|| Self {
            crowds,
            behaviours: counted(
                asked.iter().filter_map(|call| behaviour(call, ring.unwrap_or_default())),
            ),
            ring,
            rings: 2 * rang >= asked.len(),
            patience: patience(&inward, end),
            hold: median(inward.iter().filter_map(held)),
            left_out: outward.len(),
            callees: callees.into_iter().collect(),
            proxy: proxy.into_iter().collect(),
        })
    }

    /// Returns the behaviours of callees with their relative frequencies. If no behaviour was
    /// observed, callees answer all calls.
    pub fn mix(&self) -> Mix {
        let weight = |&(behaviour, calls): &(Behaviour, usize)| (behaviour, calls as f64);
        let weights: Vec<_> = self.behaviours.iter().map(weight).collect();
        Mix::new(&weights).unwrap_or_else(|_| Behaviour::Answer.into())
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let calls: usize = self.crowds.iter().map(|crowd| crowd.moments.moments().len()).sum();
        writeln!(f, "calls arrive as recorded; everything else is simulated:")?;
        writeln!(
            f,
            "  {calls} calls from {} addresses, with the timers of RFC 3261",
            self.crowds.len()
        )?;
        if let Some(patience) = self.patience {
            let patience = ms(patience);
            writeln!(f, "  callers give up after {patience:.1} ms, the median observed")?;
        }
        let rings = if self.rings { "after a 180, " } else { "" };
        write!(f, "  {} callees answer {rings}", self.callees.len())?;
        match self.ring {
            Some(ring) => writeln!(f, "{:.1} ms after the INVITE, the median observed", ms(ring))?,
            None => writeln!(f, "without delay, because no answer was observed")?,
        }
        let total: usize = self.behaviours.iter().map(|(_, calls)| calls).sum();
        for (behaviour, calls) in &self.behaviours {
            let share = 100.0 * *calls as f64 / total as f64;
            match behaviour {
                Behaviour::Reject(status) => {
                    writeln!(f, "  they reject {share:.1} % of the calls with {status}")?;
                }
                Behaviour::Ring => writeln!(f, "  they do not answer {share:.1} % of the calls")?,
                Behaviour::Answer | Behaviour::Silent => {}
            }
        }
        match self.hold {
            Some(hold) => writeln!(f, "  calls are held {:.1} ms, the median observed", ms(hold))?,
            None => writeln!(f, "  no call ended, so the simulated calls do not end")?,
        }
        if self.left_out > 0 {
            writeln!(
                f,
                "  {} calls are left out, because a callee or the proxy started them",
                self.left_out
            )?;
        }
        Ok(())
    }
}

fn crowds(observer: &Observer, calls: &[&Call], end: Timestamp) -> Vec<Crowd> {
    let mut by_address: BTreeMap<SocketAddr, (SocketAddr, Vec<Timestamp>)> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.arrived <= end) {
        let mut caller = call.caller;
        if by_address.len() == CALLERS_MAX && !by_address.contains_key(&caller) {
            caller = *by_address.last_key_value().expect("it is full").0;
        }
        by_address.entry(caller).or_insert((call.local, Vec::new())).1.push(call.arrived);
    }
    let crowd = |(address, (target, mut moments)): (SocketAddr, (SocketAddr, Vec<Timestamp>))| {
        moments.sort_unstable();
        let moments: Vec<_> = moments.iter().map(|at| at.since(Timestamp::ZERO)).collect();
        let uri = observer.uri(address).unwrap_or_default().to_owned();
        // A recording cannot contain more calls than fit in a trace.
        Trace::new(moments).ok().map(|moments| Crowd { address, target, uri, moments })
    };
    by_address.into_iter().filter_map(crowd).collect()
}

/// Returns the behaviour of the callee of `call`, or `None` if the call does not show it. The final
/// response of the callee shows the behaviour, except for a 487 after a CANCEL, which the caller
/// has caused (RFC 3261 §9.2). If such a call rang for at least `ring`, the time after which other
/// callees answer, the behaviour is [`Behaviour::Ring`]. If it rang for a shorter time, the callee
/// might have answered later.
fn behaviour(call: &Call, ring: Duration) -> Option<Behaviour> {
    match call.answered? {
        (..300, _) => Some(Behaviour::Answer),
        (487, at) if call.given_up.is_some() => {
            let rang = at.since(call.forwarded?);
            (rang >= ring).then_some(Behaviour::Ring)
        }
        (status, _) => Some(Behaviour::Reject(status.min(699))),
    }
}

/// Returns each behaviour with the number of its observations. The behaviours are in the order in
/// which they were first observed.
fn counted(behaviours: impl Iterator<Item = Behaviour>) -> Vec<(Behaviour, usize)> {
    let mut counts: Vec<(Behaviour, usize)> = Vec::new();
    for behaviour in behaviours {
        match counts.iter_mut().find(|(known, _)| *known == behaviour) {
            Some((_, count)) => *count += 1,
            None => counts.push((behaviour, 1)),
        }
    }
    counts
}

/// Estimates the median time after which callers cancel. Returns `None` if too few callers
/// cancelled to show the median. If a call got its final response, or was still open at `end`, its
/// caller waited at least until then. The estimator of Kaplan and Meier (1958) takes this into
/// account.
fn patience(calls: &[&Call], end: Timestamp) -> Option<Duration> {
    let waited = |call: &&Call| {
        let decided = call.decided.map(|(_, at)| at);
        let until = call.given_up.or(decided).unwrap_or(end);
        (until.since(call.arrived), call.given_up.is_none())
    };
    // Among waits of equal length, those that ended with a CANCEL come first.
    let mut waited: Vec<(Duration, bool)> = calls.iter().map(waited).collect();
    waited.sort_unstable();
    let mut waiting = 1.0;
    for (left, (time, _)) in
        (1..=waited.len()).rev().zip(&waited).filter(|(_, (_, is_patient))| !is_patient)
    {
        waiting *= 1.0 - 1.0 / left as f64;
        if waiting <= 0.5 {
            return Some(*time);
        }
    }
    None
}

fn median(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    let last = times.len().checked_sub(1)?;
    let (low, high) = (times[last / 2], times[last.div_ceil(2)]);
    Some(low + (high - low) / 2)
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Entry, Flow, Input};

    use super::*;
    use crate::testing::at_ms as ms;

    const CONFIG: &str = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:1\"\n\
        [[pool]]\nname = \"app\"\npolicy = \"rr\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:3\"\n";
    const PROXY: &str = "127.0.0.1:1";
    const CALLER: &str = "127.0.0.1:2";
    const CALLEE: &str = "127.0.0.1:3";

    fn message(start: &str, id: u64, cseq: &str) -> String {
        format!(
            "{start}\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n\
             To: <sip:b@h>\r\nCall-ID: {id}\r\nCSeq: 1 {cseq}\r\nContent-Length: 0\r\n\r\n"
        )
    }

    /// Returns the observations of these packets. Each packet has its time in ms, whether the proxy
    /// received it, the peer, and the message.
    fn seen(passing: &[(u64, bool, &str, String)]) -> Observer {
        let mut observer = Observer::default();
        for (at, comes, remote, text) in passing {
            let flow = Flow::udp(PROXY.parse().unwrap(), remote.parse().unwrap());
            if *comes {
                let input = Input::Offer(ms(*at), flow, text.as_bytes(), 0);
                observer.see(&Entry { now: ms(*at), input });
            } else {
                observer.see_sent(ms(*at), flow, text.as_bytes());
            }
        }
        observer
    }

    /// Returns the packets of a call that starts at `at`, rings for `ring` and is held for `hold`,
    /// all in ms.
    fn call(at: u64, status: u16, ring: u64, hold: u64) -> Vec<(u64, bool, &'static str, String)> {
        let invite = || message("INVITE sip:b@h SIP/2.0", at, "INVITE");
        let response = |status: u16| message(&format!("SIP/2.0 {status} X"), at, "INVITE");
        let decided = at + 1 + ring;
        let mut call = vec![
            (at, true, CALLER, invite()),
            (at + 1, false, CALLEE, invite()),
            (at + 1, true, CALLEE, response(180)),
            (decided, true, CALLEE, response(status)),
            (decided, false, CALLER, response(status)),
        ];
        if status < 300 {
            let bye = message("BYE sip:b@h SIP/2.0", at, "BYE");
            call.push((decided + hold, true, CALLER, bye));
        }
        call
    }

    fn scene(passing: &[(u64, bool, &str, String)], end: u64) -> Option<Scene> {
        let config = Config::parse(std::path::Path::new("c"), CONFIG.as_bytes()).unwrap();
        Scene::of(&seen(passing), &config, &[PROXY.parse().unwrap()], ms(end))
    }

    #[test]
    fn the_scene_has_the_callers_and_callees_of_the_recording() {
        let passing = [
            call(100, 200, 30, 1000),
            call(200, 200, 10, 500),
            call(300, 200, 20, 2000),
            call(400, 486, 77, 0),
        ]
        .concat();
        let scene = scene(&passing, 5000).unwrap();
        let [crowd] = &scene.crowds[..] else { panic!("{:?}", scene.crowds) };
        let moments: Vec<_> = crowd.moments.moments().iter().map(Duration::as_millis).collect();
        assert_eq!(moments, [100, 200, 300, 400]);
        assert_eq!((crowd.address.to_string(), &*crowd.uri), (CALLER.to_owned(), "sip:b@h"));
        assert_eq!(crowd.target.to_string(), PROXY);
        assert_eq!(scene.ring, Some(Duration::from_millis(20)), "of those that were answered");
        assert_eq!(scene.hold, Some(Duration::from_millis(1000)));
        assert!(scene.rings);
        assert_eq!(scene.behaviours, [(Behaviour::Answer, 3), (Behaviour::Reject(486), 1)]);
        let mix = Mix::new(&[(Behaviour::Answer, 3.0), (Behaviour::Reject(486), 1.0)]).unwrap();
        assert_eq!(scene.mix(), mix);
        assert_eq!(scene.patience, None);
        let text = scene.to_string();
        assert!(text.contains("they reject 25.0 % of the calls with 486"), "{text}");
        let answers = "1 callees answer after a 180, 20.0 ms after the INVITE, the median observed";
        assert!(text.contains(answers), "{text}");
        assert_eq!(scene.callees, [CALLEE.parse().unwrap()]);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        let of = |times: &[u64]| median(times.iter().copied().map(Duration::from_millis));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3]), Some(Duration::from_millis(3)));
        assert_eq!(of(&[9, 1]), Some(Duration::from_millis(5)));
        assert_eq!(of(&[9, 1, 2]), Some(Duration::from_millis(2)));
    }

    /// Returns the packets of a call that starts at `at` and is cancelled after `patience`, both in
    /// ms.
    fn given_up(at: u64, patience: u64) -> Vec<(u64, bool, &'static str, String)> {
        let cancel = message("CANCEL sip:b@h SIP/2.0", at, "CANCEL");
        let mut call = call(at, 487, patience, 0);
        call.insert(3, (at + patience, true, CALLER, cancel));
        call
    }

    #[test]
    fn a_caller_that_gives_up_does_not_count_as_rejected() {
        // Two callees answer after 100 ms. One of the three cancelled calls rings for a shorter
        // time, and two ring for longer.
        let passing = [
            call(0, 200, 100, 10),
            call(1, 200, 100, 10),
            given_up(2, 50),
            given_up(3, 300),
            given_up(4, 400),
        ]
        .concat();
        let scene = scene(&passing, 5000).unwrap();
        assert_eq!(scene.behaviours, [(Behaviour::Answer, 2), (Behaviour::Ring, 2)]);
        // The wait of 50 ms is the shortest of five, so four of five callers wait longer. Of the
        // remaining two, one waits longer than 300 ms.
        assert_eq!(scene.patience, Some(Duration::from_millis(300)));
        assert!(scene.to_string().contains("they do not answer 50.0 % of the calls"), "{scene}");
        // There was no CANCEL, so the callee chose to send the 487.
        let rejected = self::scene(&call(0, 487, 10, 0), 5000).unwrap();
        assert_eq!(rejected.behaviours, [(Behaviour::Reject(487), 1)]);
    }

    #[test]
    fn a_few_impatient_callers_do_not_make_all_impatient() {
        let mut passing = given_up(0, 50);
        for at in 1..10 {
            passing.extend(call(at, 200, 10, 10));
            passing.extend(call(1000 + at, 200, 100, 10));
        }
        assert_eq!(scene(&passing, 5000).unwrap().patience, None);
    }

    #[test]
    fn unobserved_values_have_defaults_and_non_callers_are_omitted() {
        let invite = |id| message("INVITE sip:b@h SIP/2.0", id, "INVITE");
        let passing = [
            (1, true, CALLER, invite(1)),
            (2, true, CALLEE, invite(2)),
            (3, true, PROXY, invite(3)),
        ];
        let only = scene(&passing, 5000).unwrap();
        assert_eq!((only.crowds.len(), only.left_out), (1, 2));
        assert_eq!((only.ring, only.hold), (None, None));
        let answers = "1 callees answer after a 180, without delay, because no answer was observed";
        assert!(only.to_string().contains(answers), "{only}");
        assert_eq!(only.mix(), Behaviour::Answer.into());
        assert!(scene(&passing, 0).is_none() && scene(&[], 0).is_none());
    }

    #[test]
    fn callers_beyond_the_limit_call_from_the_last_address() {
        let callers: Vec<_> = (0..300u64).map(|n| format!("127.0.1.1:{}", 1000 + n)).collect();
        let invite = |id| message("INVITE sip:b@h SIP/2.0", id, "INVITE");
        let passing: Vec<_> =
            (0..300).map(|n| (n, true, &*callers[n as usize], invite(n))).collect();
        let scene = scene(&passing, 5000).unwrap();
        assert_eq!(scene.crowds.len(), CALLERS_MAX);
        assert_eq!(scene.crowds[CALLERS_MAX - 1].moments.moments().len(), 45);
    }
}
