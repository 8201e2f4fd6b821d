//! Who is banned, and until when.
//!
//! A ban costs its source everything, so it ends by itself, and an operator can lift it. There are
//! few at a time: whoever can forge addresses could fill any list, and a full one is only counted.

use tidegate_world::Timestamp;

/// Why a source is banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanCause {
    /// It went beyond a limit.
    Limit,
    /// It kept sending more than anybody may.
    Rate,
    /// An operator wants it so.
    Operator,
}

impl BanCause {
    /// Its name in what operators see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Rate => "rate",
            Self::Operator => "operator",
        }
    }
}

/// A source that is banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The source.
    pub source: u128,
    /// When the ban ends.
    pub until: Timestamp,
    /// Why.
    pub cause: BanCause,
}

/// The bans in force.
#[derive(Clone, Debug, Default)]
pub struct Bans {
    /// By source, ascending. Some may have ended.
    bans: Vec<Ban>,
    count_max: usize,
    overflowed: u64,
}

impl Bans {
    /// Up to `count_max` at the same time.
    pub fn new(count_max: usize) -> Self {
        Self { bans: Vec::new(), count_max, overflowed: 0 }
    }

    /// Bans that found no room.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Whether nobody is banned.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bans.is_empty()
    }

    /// Whether a source is banned.
    pub fn is_banned(&self, now: Timestamp, source: u128) -> bool {
        self.find(source).is_ok_and(|at| now < self.bans[at].until)
    }

    /// Those in force, by source.
    pub fn each(&self, now: Timestamp) -> impl Iterator<Item = &Ban> {
        self.bans.iter().filter(move |ban| now < ban.until)
    }

    /// Bans a source; if it is banned, until the later of the two ends. False without room.
    pub fn ban(&mut self, now: Timestamp, ban: Ban) -> bool {
        self.bans.retain(|ban| now < ban.until);
        match self.find(ban.source) {
            Ok(at) if self.bans[at].until >= ban.until => {}
            Ok(at) => self.bans[at] = ban,
            Err(at) if self.bans.len() < self.count_max => self.bans.insert(at, ban),
            Err(_) => {
                self.overflowed += 1;
                return false;
            }
        }
        true
    }

    /// Ends a ban. False if there was none.
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

    fn at(s: u64) -> Timestamp {
        Timestamp::from_nanos(s * 1_000_000_000)
    }

    fn ban(source: u128, until_s: u64) -> Ban {
        Ban { source, until: at(until_s), cause: BanCause::Limit }
    }

    #[test]
    fn a_ban_holds_until_it_ends() {
        let mut bans = Bans::new(3);
        for (source, until) in [(9, 30), (7, 10), (8, 20)] {
            assert!(bans.ban(at(0), ban(source, until)));
        }
        let banned = |bans: &Bans, s| -> Vec<u128> {
            let each: Vec<_> = bans.each(at(s)).map(|ban| ban.source).collect();
            assert!((0..20).all(|source| bans.is_banned(at(s), source) == each.contains(&source)));
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
        assert!(bans.is_banned(at(19), 7));
        bans.ban(at(5), Ban { cause: BanCause::Operator, ..ban(7, 25) });
        assert_eq!(
            bans.each(at(24)).map(|ban| ban.cause).collect::<Vec<_>>(),
            [BanCause::Operator]
        );
    }

    #[test]
    fn a_full_list_takes_none_until_one_has_ended() {
        let mut bans = Bans::new(2);
        assert!(bans.ban(at(0), ban(7, 10)) && bans.ban(at(0), ban(8, 20)));
        assert!(!bans.ban(at(9), ban(9, 30)));
        assert_eq!((bans.overflowed(), bans.is_banned(at(9), 9)), (1, false));
        assert!(bans.ban(at(10), ban(9, 30)) && bans.is_banned(at(10), 9));
    }

    #[test]
    fn an_operator_lifts_a_ban() {
        let mut bans = Bans::new(2);
        bans.ban(at(0), ban(7, 10));
        assert!(!bans.lift(at(0), 8) && bans.is_banned(at(0), 7));
        assert!(bans.lift(at(0), 7) && !bans.is_banned(at(0), 7));
        bans.ban(at(0), ban(7, 10));
        assert!(!bans.lift(at(10), 7), "it has ended");
    }
}
