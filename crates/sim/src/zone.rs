//! The host names of a simulated network, and whoever resolves them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_world::{ADDRESSES_MAX, Answer, Family, Purpose, Question, Seed, Stream};

use crate::micros;

/// How questions are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// How long an answer takes; in text, in microseconds.
    #[serde(rename = "delay_us", with = "micros", default)]
    pub delay: Duration,
    /// How much longer it may take, uniformly distributed; in text, in microseconds.
    #[serde(rename = "jitter_us", with = "micros", default)]
    pub jitter: Duration,
    /// Share of the questions to which the answer is that nobody could say, 0 to 1.
    #[serde(default)]
    pub fails: f64,
    /// Share of the questions that are never answered, 0 to 1.
    #[serde(default)]
    pub lost: f64,
}

/// The names that there are, and how questions for them are answered.
///
/// What an answer says is settled when the question is asked. Any other name is not found.
pub struct Zone {
    records: BTreeMap<Box<str>, (Vec<IpAddr>, Duration)>,
    usual: Resolution,
    /// In place of what is usual, for a while.
    instead: Option<Resolution>,
    stream: Stream,
}

impl Zone {
    /// No names, and answers that take no time. What is drawn is drawn from `seed`.
    pub fn new(seed: Seed) -> Self {
        Self {
            records: BTreeMap::new(),
            usual: Resolution::default(),
            instead: None,
            stream: seed.stream(Purpose::Resolution, 0),
        }
    }

    /// A name leads to these addresses from now on, for as long at a time as `ttl`.
    pub fn set(&mut self, host: &str, addresses: &[IpAddr], ttl: Duration) {
        self.records.insert(host.into(), (addresses.to_vec(), ttl));
    }

    /// There is no such name any more.
    pub fn remove(&mut self, host: &str) {
        self.records.remove(host);
    }

    /// How questions are answered from now on, while nothing is wrong.
    pub fn resolve_by(&mut self, resolution: Resolution) {
        self.usual = resolution;
    }

    /// How they are answered in place of what is usual; `None`: as usual.
    pub fn resolve_instead_by(&mut self, resolution: Option<Resolution>) {
        self.instead = resolution;
    }

    /// What is answered to a question, and after how long; `None` if nothing is.
    pub(crate) fn answer(&mut self, question: &Question) -> Option<(Duration, Answer)> {
        let Resolution { delay, jitter, fails, lost } = self.instead.unwrap_or(self.usual);
        // Three draws for each question, whatever comes of it: a share that is changed changes
        // no other fate.
        let [is_lost, has_failed, later] = [(); 3].map(|()| self.stream.unit());
        if is_lost < lost {
            return None;
        }
        let after = delay + jitter.mul_f64(later);
        let answer = if has_failed < fails { Answer::NoAnswer } else { self.found(question) };
        Some((after, answer))
    }

    fn found(&self, Question::Resolve(host, family): &Question) -> Answer {
        let Some((addresses, ttl)) = self.records.get(&**host) else { return Answer::NotFound };
        let of_family = addresses.iter().copied().filter(|ip| Family::of(*ip) == *family);
        let addresses: Vec<_> = of_family.take(ADDRESSES_MAX).collect();
        match addresses.is_empty() {
            true => Answer::NotFound,
            false => Answer::Addresses(addresses.into(), *ttl),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(zone: &mut Zone, host: &str, family: Family) -> Option<(Duration, Answer)> {
        zone.answer(&Question::Resolve(host.into(), family))
    }

    #[test]
    fn a_name_leads_to_its_addresses_of_the_family_asked_for() {
        let mut zone = Zone::new(Seed(1));
        let (four, six) = ("10.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        let ttl = Duration::from_secs(9);
        zone.set("both.example", &[four, six], ttl);
        let now = |answer| Some((Duration::ZERO, answer));
        let found = |ip| now(Answer::Addresses([ip].into(), ttl));
        assert_eq!(ask(&mut zone, "both.example", Family::V4), found(four));
        assert_eq!(ask(&mut zone, "both.example", Family::V6), found(six));
        zone.set("both.example", &[six], ttl);
        assert_eq!(ask(&mut zone, "both.example", Family::V4), now(Answer::NotFound));
        zone.remove("both.example");
        assert_eq!(ask(&mut zone, "both.example", Family::V6), now(Answer::NotFound));
    }

    #[test]
    fn shares_of_the_questions_fail_are_lost_and_are_late() {
        let mut zone = Zone::new(Seed(2));
        zone.set("a.example", &["10.0.0.1".parse().unwrap()], Duration::from_secs(9));
        let [delay, jitter] = [2, 3].map(Duration::from_secs);
        zone.resolve_by(Resolution { delay, jitter, fails: 0.25, lost: 0.1 });
        let answers: Vec<_> = (0..2000).map(|_| ask(&mut zone, "a.example", Family::V4)).collect();
        let given: Vec<_> = answers.iter().flatten().collect();
        let failed = given.iter().filter(|(_, answer)| *answer == Answer::NoAnswer).count();
        // Binomial: five standard deviations are 67 and 97.
        assert!((answers.len() - given.len()).abs_diff(200) < 67);
        assert!(failed.abs_diff(450) < 97, "{failed}");
        let latest = given.iter().map(|(after, _)| *after).max().unwrap();
        assert!(given.iter().all(|(after, _)| *after >= delay) && latest > delay + jitter / 2);
        assert!(latest <= delay + jitter);

        zone.resolve_instead_by(Some(Resolution { lost: 1.0, ..Resolution::default() }));
        assert_eq!(ask(&mut zone, "a.example", Family::V4), None);
        zone.resolve_instead_by(None);
        let usual = (0..100).filter(|_| ask(&mut zone, "a.example", Family::V4).is_some());
        assert!(usual.count() > 50);
    }
}
