//! The queue of outstanding DNS queries, which limits the share of each domain.
//!
//! If a name server does not answer, each query to it stays outstanding for seconds. The number of
//! queries that are sent and not answered is limited. So each query takes one of a limited number
//! of places. New names of one domain may take at most as many places as remain free, as in the
//! shared [tables](crate::shares), and the domains take turns. Names that have been resolved before
//! come first, and a part of the places is reserved for them, so that they stay resolvable during a
//! flood of queries for new names.

use std::collections::{BTreeMap, VecDeque};

/// One in this many places is reserved for queries for names that have been resolved before.
const KEPT_PART: usize = 4;

/// The maximum number of outstanding queries, as a multiple of the queries that may be unanswered.
const OUTSTANDING_PER_SENT: usize = 16;

/// Outstanding queries by domain. Some have been sent, and the others wait to be sent.
pub(super) struct Backlog {
    sent_max: usize,
    all: Load,
    domains: BTreeMap<Box<str>, Domain>,
    /// The domains with waiting queries, in the order of their turns: one list for names that have
    /// been resolved before, and one for others.
    turns: [VecDeque<Box<str>>; 2],
}

/// The number of outstanding queries, and how many of these were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    outstanding: usize,
    sent: usize,
}

/// The queries for the names of one domain.
#[derive(Default)]
struct Domain {
    load: Load,
    /// Queries that wait to be sent, oldest first: one list for names that have been resolved
    /// before, and one for others.
    waiting: [VecDeque<u64>; 2],
}

impl Backlog {
    /// Creates a backlog in which at most `sent_max` queries are sent and not answered yet.
    pub(super) fn new(sent_max: usize) -> Self {
        let (all, domains, turns) = Default::default();
        Self { sent_max, all, domains, turns }
    }

    pub(super) fn outstanding_max(&self) -> usize {
        self.sent_max * OUTSTANDING_PER_SENT
    }

    /// Returns whether there is room for a query for this name. `is_known` is true if the name has
    /// been resolved before.
    pub(super) fn has_room(&self, name: &str, is_known: bool) -> bool {
        let held = self.domains.get(domain_of(name)).map_or(0, |domain| domain.load.outstanding);
        may_take(self.outstanding_max(), self.all.outstanding, held, is_known)
    }

    pub(super) fn push(&mut self, id: u64, name: &str, is_known: bool) {
        self.all.outstanding += 1;
        let key = domain_of(name);
        if !self.domains.contains_key(key) {
            self.domains.insert(key.into(), Domain::default());
        }
        let Some(domain) = self.domains.get_mut(key) else { return };
        domain.load.outstanding += 1;
        let waiting = &mut domain.waiting[lane(is_known)];
        if waiting.is_empty() {
            self.turns[lane(is_known)].push_back(key.into());
        }
        waiting.push_back(id);
    }

    /// Returns the next query to send.
    pub(super) fn pop(&mut self) -> Option<u64> {
        [true, false].into_iter().find_map(|is_known| {
            let lane = lane(is_known);
            // Each domain is in the list at most once. The loop skips only a few domains, because
            // a skipped domain has at least as many unanswered queries as there are free places.
            for _ in 0..self.turns[lane].len() {
                if !may_take(self.sent_max, self.all.sent, 0, is_known) {
                    return None;
                }
                let key = self.turns[lane].pop_front()?;
                let domain = self.domains.get_mut(&key)?;
                let may_send = may_take(self.sent_max, self.all.sent, domain.load.sent, is_known);
                let next = if may_send { domain.waiting[lane].pop_front() } else { None };
                if next.is_some() {
                    domain.load.sent += 1;
                    self.all.sent += 1;
                }
                if !domain.waiting[lane].is_empty() {
                    self.turns[lane].push_back(key);
                }
                if next.is_some() {
                    return next;
                }
            }
            None
        })
    }

    /// Frees the place of a query for `name` that [`pop`](Self::pop) has returned, because the
    /// caller does not send the query.
    pub(super) fn take_back(&mut self, name: &str) {
        if let Some(domain) = self.domains.get_mut(domain_of(name)) {
            domain.load.sent -= 1;
            self.all.sent -= 1;
        }
    }

    /// Removes a query, which may have been sent.
    pub(super) fn remove(&mut self, id: u64, name: &str, is_sent: bool) {
        let key = domain_of(name);
        let Some(domain) = self.domains.get_mut(key) else { return };
        for load in [&mut self.all, &mut domain.load] {
            load.outstanding -= 1;
            load.sent -= usize::from(is_sent);
        }
        for (waiting, turns) in domain.waiting.iter_mut().zip(&mut self.turns) {
            if !is_sent && waiting.contains(&id) {
                waiting.retain(|other| *other != id);
                if waiting.is_empty() {
                    turns.retain(|other| **other != *key);
                }
            }
        }
        if domain.load.outstanding == 0 {
            self.domains.remove(key);
        }
    }
}

/// Returns whether one more query may take one of `max` places. `taken` is the number of places in
/// use, and `held` is the number of those that queries for names of the same domain use.
fn may_take(max: usize, taken: usize, held: usize, is_known: bool) -> bool {
    match is_known {
        true => taken < max,
        false => held < (max - max / KEPT_PART).saturating_sub(taken),
    }
}

fn lane(is_known: bool) -> usize {
    usize::from(!is_known)
}

/// Returns the last two labels of a name. So all names under a public suffix of two labels, such as
/// `co.uk`, count as one domain.
fn domain_of(name: &str) -> &str {
    let bare = name.strip_suffix('.').unwrap_or(name);
    bare.rmatch_indices('.').nth(1).map_or(name, |(dot, _)| &name[dot + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(backlog: &mut Backlog) -> Vec<u64> {
        std::iter::from_fn(|| backlog.pop()).collect()
    }

    #[test]
    fn the_domain_of_a_name_has_two_labels() {
        let names = ["a.", "a.example.", "h.a.example.", "_sip._udp.h.a.example.", "a.example"];
        let domains = ["a.", "a.example.", "a.example.", "a.example.", "a.example"];
        assert_eq!(names.map(domain_of), domains);
    }

    #[test]
    fn known_names_come_first_and_have_places_of_their_own() {
        let mut backlog = Backlog::new(8);
        for id in 0..20 {
            backlog.push(id, &format!("h{id}."), false);
        }
        assert_eq!(sent(&mut backlog), (0..6).collect::<Vec<_>>());
        for id in 20..30 {
            backlog.push(id, &format!("h{id}."), true);
        }
        assert_eq!(sent(&mut backlog), [20, 21]);
        for (id, known) in [(0, 22), (1, 23), (20, 24)] {
            backlog.remove(id, &format!("h{id}."), true);
            assert_eq!(sent(&mut backlog), [known]);
        }
    }

    #[test]
    fn a_domain_leaves_as_many_places_as_it_takes_and_the_domains_take_turns() {
        let mut backlog = Backlog::new(64);
        let name = |domain: &str, i: u64| format!("h{i}.{domain}.example.");
        let mut id = 0;
        while backlog.has_room(&name("slow", id), false) {
            backlog.push(id, &name("slow", id), false);
            id += 1;
        }
        assert_eq!(id, 384, "half of three quarters of 1024");
        assert_eq!(sent(&mut backlog).len(), 24, "half of three quarters of 64");
        for other in 1000..1003 {
            backlog.push(other, &name("b", other), false);
            backlog.push(other + 10, &name("c", other), false);
        }
        assert_eq!(sent(&mut backlog), [1000, 1010, 1001, 1011, 1002, 1012]);
        // A place that becomes free goes to a domain that has few places.
        backlog.push(2000, &name("d", 0), false);
        assert_eq!(sent(&mut backlog), [2000]);
    }

    #[test]
    fn a_query_that_was_not_sent_can_be_removed() {
        let mut backlog = Backlog::new(1);
        for id in 0..3 {
            backlog.push(id, "a.", false);
        }
        assert_eq!(sent(&mut backlog), [0]);
        backlog.remove(1, "a.", false);
        backlog.remove(0, "a.", true);
        assert_eq!(sent(&mut backlog), [2]);
        backlog.remove(2, "a.", true);
        assert_eq!((backlog.all, backlog.domains.len()), (Load::default(), 0));
        assert!(backlog.turns.iter().all(VecDeque::is_empty));
    }
}
