//! Who called and who answered, as far as a recording tells.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_agent::{Behaviour, Mix, Trace};
use tidegate_server::config::Config;
use tidegate_world::Timestamp;

use super::observer::{Call, Observer};

/// Callers that are told apart at the most: those beyond call from the address of the last.
const CALLERS_MAX: usize = 256;

/// Calls from one address.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// The address.
    pub address: SocketAddr,
    /// Where they call.
    pub target: SocketAddr,
    /// Whom.
    pub uri: String,
    /// When, from the driver's beginning.
    pub moments: Trace,
}

/// Who called and who answered.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The callers.
    pub crowds: Vec<Crowd>,
    /// Where the callees are.
    pub callees: Vec<SocketAddr>,
    /// What becomes of calls that reach a callee: the shares observed.
    pub mix: Mix,
    /// How long it takes a callee to answer: the median observed.
    pub ring: Duration,
    /// Whether callees say that they ring.
    pub rings: bool,
    /// How long a call is held: the median observed, or for ever if none ended.
    pub hold: Option<Duration>,
    /// Where the proxy is reached, and what it sends from.
    pub proxy: Vec<SocketAddr>,
    /// Calls that callees began, or the proxy itself, which are left out.
    pub left_out: usize,
}

impl Scene {
    /// What was observed until `end`; `None` if no call began.
    pub fn of(
        observer: &Observer,
        config: &Config,
        listeners: &[SocketAddr],
        end: Timestamp,
    ) -> Option<Self> {
        let backends = config.pool.iter().flat_map(|pool| &pool.backends).map(|b| b.address);
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
        (!crowds.is_empty()).then(|| Self {
            crowds,
            mix: mix(asked.iter().filter_map(|call| call.answered).map(|(status, _)| status)),
            ring: median(asked.iter().filter_map(ring)).unwrap_or_default(),
            rings: 2 * rang >= asked.len(),
            hold: median(inward.iter().filter_map(held)),
            left_out: outward.len(),
            callees: callees.into_iter().collect(),
            proxy: proxy.into_iter().collect(),
        })
    }
}

/// Says what was observed and what is assumed.
impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let calls: usize = self.crowds.iter().map(|crowd| crowd.moments.moments().len()).sum();
        writeln!(f, "arrivals as recorded; what callers do after them is simulated:")?;
        writeln!(f, "  {calls} calls from {} addresses, by RFC 3261's timers", self.crowds.len())?;
        let rings = if self.rings { "after a 180, " } else { "" };
        writeln!(
            f,
            "  {} callees answer {rings}{:.1} ms after the INVITE, the median observed",
            self.callees.len(),
            ms(self.ring)
        )?;
        match self.hold {
            Some(hold) => writeln!(f, "  calls are held {:.1} ms, the median observed", ms(hold))?,
            None => writeln!(f, "  no call ended: they are held beyond the end")?,
        }
        if self.left_out > 0 {
            writeln!(f, "  {} calls that no caller began are left out", self.left_out)?;
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
        // More than a trace holds do not fit into a recording.
        Trace::new(moments).ok().map(|moments| Crowd { address, target, uri, moments })
    };
    by_address.into_iter().filter_map(crowd).collect()
}

/// Shares of the final statuses; if there were none, everything is answered.
fn mix(statuses: impl Iterator<Item = u16>) -> Mix {
    let mut shares: BTreeMap<u16, f64> = BTreeMap::new();
    for status in statuses {
        *shares.entry(if status < 300 { 200 } else { status.min(699) }).or_default() += 1.0;
    }
    let weights: Vec<_> = shares
        .into_iter()
        .map(|(status, share)| match status {
            200 => (Behaviour::Answer, share),
            refused => (Behaviour::Refuse(refused), share),
        })
        .collect();
    Mix::new(&weights).unwrap_or_else(|_| Behaviour::Answer.into())
}

fn median(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Entry, Input, Path};

    use super::*;

    const CONFIG: &str = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:1\"\n\
        [[pool]]\nname = \"app\"\npolicy = \"rr\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:3\"\n";
    const PROXY: &str = "127.0.0.1:1";
    const CALLER: &str = "127.0.0.1:2";
    const CALLEE: &str = "127.0.0.1:3";

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn message(start: &str, id: u64, cseq: &str) -> String {
        format!(
            "{start}\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n\
             To: <sip:b@h>\r\nCall-ID: {id}\r\nCSeq: 1 {cseq}\r\nContent-Length: 0\r\n\r\n"
        )
    }

    /// What passes, by time in ms: whether it comes, from or to whom, and the message.
    fn seen(passing: &[(u64, bool, &str, String)]) -> Observer {
        let mut observer = Observer::default();
        for (at, comes, remote, text) in passing {
            let path = Path::udp(PROXY.parse().unwrap(), remote.parse().unwrap());
            if *comes {
                let input = Input::Offer(ms(*at), path, text.as_bytes(), 0);
                observer.see(&Entry { now: ms(*at), input });
            } else {
                observer.see_sent(ms(*at), path, text.as_bytes());
            }
        }
        observer
    }

    /// A call that begins at `at`, rings for `ring` and is held for `hold`; all in ms.
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
    fn callers_and_callees_are_as_they_were() {
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
        assert_eq!(scene.ring, Duration::from_millis(20), "of those that were answered");
        assert_eq!(scene.hold, Some(Duration::from_millis(1000)));
        assert!(scene.rings);
        let mix = Mix::new(&[(Behaviour::Answer, 3.0), (Behaviour::Refuse(486), 1.0)]).unwrap();
        assert_eq!(scene.mix, mix);
        assert_eq!(scene.callees, [CALLEE.parse().unwrap()]);
    }

    #[test]
    fn what_was_not_observed_has_a_default_and_who_did_not_call_is_left_out() {
        let invite = |id| message("INVITE sip:b@h SIP/2.0", id, "INVITE");
        let passing = [
            (1, true, CALLER, invite(1)),
            (2, true, CALLEE, invite(2)),
            (3, true, PROXY, invite(3)),
        ];
        let only = scene(&passing, 5000).unwrap();
        assert_eq!((only.crowds.len(), only.left_out), (1, 2));
        assert_eq!((only.ring, only.hold), (Duration::ZERO, None));
        assert_eq!(only.mix, Behaviour::Answer.into());
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
