//! A list of the bans in force, each with its end.
//!
//! The server does no new work for a banned source. Every ban ends after some time, and an operator
//! can lift it earlier. The number of bans is limited, because an attacker that forges addresses
//! could fill any list. If the list is full, a new ban replaces the ban with the lowest message
//! rate, if that rate is lower. The list counts the bans that are lost because it is full.

use tidegate_world::{Timestamp, unit_enum};

unit_enum! {
    /// The reason for a ban. Operators see these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum BanCause {
        /// The source exceeded a limit.
        Limit = "limit",
        /// The source sent more messages a second than any source may send.
        Rate = "rate",
        /// An operator set the ban.
        Operator = "operator",
    }
}

/// A source that is banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The banned source.
    pub source: u128,
    /// Time at which the ban ends.
    pub until: Timestamp,
    /// The reason for the ban.
    pub cause: BanCause,
    /// Messages a second that the source sent, or [`MAX`](u32::MAX) for a ban that is never
    /// replaced.
    pub rate: u32,
    /// True if the source has proved that it receives our packets. So at least some packets with
    /// this address come from the source itself, and not from a host that forges the address.
    pub is_proven: bool,
}

/// A list of the bans in force, with a maximum length.
#[derive(Clone, Debug, Default)]
pub struct Bans {
    /// The bans, sorted by source. Some may have ended.
    bans: Vec<Ban>,
    count_max: usize,
    overflowed: u64,
}

impl Bans {
    /// Creates a list of up to `count_max` bans at the same time.
    pub fn new(count_max: usize) -> Self {
        Self { bans: Vec::new(), count_max, overflowed: 0 }
    }

    /// Returns the number of bans that were lost because the list was full.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Returns whether the list is empty. A list may still contain bans that have ended.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bans.is_empty()
    }

    /// Returns the bans in force, sorted by source.
    pub fn each(&self, now: Timestamp) -> impl Iterator<Item = &Ban> {
        self.bans.iter().filter(move |ban| now < ban.until)
    }

    /// Returns the ban of a source, or `None` if the source is not banned.
    pub fn get(&self, now: Timestamp, source: u128) -> Option<&Ban> {
        let at = self.find(source).ok()?;
        Some(&self.bans[at]).filter(|ban| now < ban.until)
    }

    /// Bans a source. If the source is already banned, the ban that ends later applies, with the
    /// higher of the two rates. In a full list, the new ban replaces the ban with the lowest rate.
    /// Returns false if the list is full and no ban in it has a lower rate than the new ban.
    pub fn ban(&mut self, now: Timestamp, ban: Ban) -> bool {
        self.bans.retain(|ban| now < ban.until);
        match self.find(ban.source) {
            Ok(at) => {
                let old = self.bans[at];
                let later = if old.until >= ban.until { old } else { ban };
                let is_proven = old.is_proven || ban.is_proven;
                self.bans[at] = Ban { rate: old.rate.max(ban.rate), is_proven, ..later };
            }
            Err(at) if self.bans.len() < self.count_max => self.bans.insert(at, ban),
            Err(_) => {
                self.overflowed += 1;
                let least = (0..self.bans.len()).min_by_key(|&at| self.bans[at].rate);
                let Some(least) = least.filter(|&at| self.bans[at].rate < ban.rate) else {
                    return false;
                };
                self.bans.remove(least);
                let at = self.bans.partition_point(|other| other.source < ban.source);
                self.bans.insert(at, ban);
            }
        }
        true
    }

    /// Records that a banned source has proved that it receives our packets. Returns false if the
    /// source is not banned, or had proved this before.
    pub fn prove(&mut self, source: u128) -> bool {
        let Ok(at) = self.find(source) else { return false };
        !std::mem::replace(&mut self.bans[at].is_proven, true)
    }

    /// Ends the ban of a source. Returns false if the source was not banned.
    pub fn lift(&mut self, now: Timestamp, source: u128) -> bool {
        let Ok(at) = self.find(source) else { return false };
        now < self.bans.remove(at).until
    }

    fn find(&self, source: u128) -> Result<usize, usize> {
        self.bans.binary_search_by_key(&source, |ban| ban.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_s as at;

    fn ban(source: u128, until_s: u64) -> Ban {
        Ban { source, until: at(until_s), cause: BanCause::Limit, rate: 100, is_proven: false }
    }

    fn is_banned(bans: &Bans, s: u64, source: u128) -> bool {
        bans.get(at(s), source).is_some()
    }

    #[test]
    fn in_a_full_list_the_source_that_sent_least_is_replaced() {
        let mut bans = Bans::new(2);
        let of = |source, rate| Ban { rate, ..ban(source, 60) };
        assert!(bans.ban(at(0), of(7, 5_000)) && bans.ban(at(0), of(8, 300)));
        assert!(!bans.ban(at(1), of(9, 300)), "no more than the least");
        // 12,360 sources that sent a few packets each do not displace one that floods.
        assert!((100..12_460).all(|source| !bans.ban(at(1), of(source, 130))));
        assert!(bans.ban(at(1), of(9, 301)));
        let banned: Vec<_> = bans.each(at(1)).map(|ban| (ban.source, ban.rate)).collect();
        assert_eq!(banned, [(7, 5_000), (9, 301)]);
        assert_eq!(bans.overflowed(), 1 + 12_360 + 1);
        // A source that is already banned keeps its highest rate.
        assert!(bans.ban(at(2), of(9, 200)) && bans.ban(at(2), of(9, 900)));
        assert_eq!(bans.get(at(2), 9).map(|ban| ban.rate), Some(900));
    }

    #[test]
    fn a_ban_holds_until_it_ends() {
        let mut bans = Bans::new(3);
        for (source, until) in [(9, 30), (7, 10), (8, 20)] {
            assert!(bans.ban(at(0), ban(source, until)));
        }
        let banned = |bans: &Bans, s| -> Vec<u128> {
            let each: Vec<_> = bans.each(at(s)).map(|ban| ban.source).collect();
            let banned: Vec<_> = (0..20).filter(|&source| is_banned(bans, s, source)).collect();
            assert_eq!(banned, each);
            each
        };
        assert_eq!(banned(&bans, 9), [7, 8, 9]);
        assert_eq!(banned(&bans, 10), [8, 9]);
        assert_eq!(banned(&bans, 30), []);
    }

    #[test]
    fn the_later_end_holds() {
        let mut bans = Bans::new(1);
        bans.ban(at(0), ban(7, 20));
        bans.ban(at(0), ban(7, 10));
        assert!(is_banned(&bans, 19, 7));
        bans.ban(at(5), Ban { cause: BanCause::Operator, ..ban(7, 25) });
        assert_eq!(
            bans.each(at(24)).map(|ban| ban.cause).collect::<Vec<_>>(),
            [BanCause::Operator]
        );
    }

    #[test]
    fn a_full_list_takes_no_ban_until_one_has_ended() {
        let mut bans = Bans::new(2);
        assert!(bans.ban(at(0), ban(7, 10)) && bans.ban(at(0), ban(8, 20)));
        assert!(!bans.ban(at(9), ban(9, 30)));
        assert_eq!((bans.overflowed(), is_banned(&bans, 9, 9)), (1, false));
        assert!(bans.ban(at(10), ban(9, 30)) && is_banned(&bans, 10, 9));
    }

    #[test]
    fn an_operator_lifts_a_ban() {
        let mut bans = Bans::new(2);
        bans.ban(at(0), ban(7, 10));
        assert!(!bans.lift(at(0), 8) && is_banned(&bans, 0, 7));
        assert!(bans.lift(at(0), 7) && !is_banned(&bans, 0, 7));
        bans.ban(at(0), ban(7, 10));
        assert!(!bans.lift(at(10), 7), "it has ended");
    }
}
