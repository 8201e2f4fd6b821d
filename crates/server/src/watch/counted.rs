//! The counters of the shards whose growth is reported in the log.

use tidegate_control::Reason;
use tidegate_proxy::{DropReason, ReplyReason};

use crate::metrics::collect::ShardCounters;

/// A counter of the shards, with the text for log lines about its growth.
pub(super) struct Counted {
    pub(super) begins: &'static str,
    /// The events that are counted, such as "requests rejected".
    pub(super) of: &'static str,
    pub(super) count: fn(&ShardCounters) -> u64,
}

/// The counters whose growth is reported. The log line about the first counter starts with the name
/// of the overload control law.
pub(super) static COUNTED: [Counted; 21] = [
    Counted {
        begins: "rejects new requests",
        of: "requests rejected",
        count: |shard| {
            let reasons =
                [Reason::Law, Reason::Rank, Reason::Stale, Reason::Late, Reason::SourceShare];
            reasons.iter().map(|&reason| shard.proxy.rejected(reason).get()).sum()
        },
    },
    Counted {
        begins: "INVITEs and REGISTERs are dropped without a response, because of overload or a ban",
        of: "requests dropped",
        count: ShardCounters::filtered,
    },
    Counted {
        begins: "the kernel does not accept the rule for the requests to drop; raise \
                 net.core.optmem_max",
        of: "failed attempts",
        count: |shard| shard.io.shed_errors.get(),
    },
    Counted {
        begins: "the queue of new requests is full",
        of: "requests rejected",
        count: |shard| shard.proxy.rejected(Reason::QueueFull).get(),
    },
    Counted {
        begins: "a queue of messages is full",
        of: "messages dropped",
        count: |shard| {
            let dropped = |why| shard.proxy.dropped(why).get();
            dropped(DropReason::QueueFull) + dropped(DropReason::Unverified)
        },
    },
    Counted {
        begins: "every back end that a request could go to is at its limits",
        of: "requests rejected",
        count: |shard| shard.proxy.rejected(Reason::PoolFull).get(),
    },
    Counted {
        begins: "a source has used up its share of the room of back ends",
        of: "requests rejected",
        count: |shard| shard.proxy.rejected(Reason::PoolShare).get(),
    },
    Counted {
        begins: "no back end of a pool takes new requests",
        of: "requests rejected",
        count: |shard| shard.proxy.rejected(Reason::PoolDown).get(),
    },
    Counted {
        begins: "a source exceeds its limit",
        of: "requests rejected",
        count: |shard| shard.proxy.rejected(Reason::SourceLimit).get(),
    },
    Counted {
        begins: "every back end that a request could go to has asked for fewer requests (feedback)",
        of: "requests rejected",
        count: |shard| shard.proxy.rejected(Reason::Feedback).get(),
    },
    Counted {
        begins: "a server that does not obey feedback has used up its share",
        of: "requests rejected",
        count: |shard| shard.proxy.rejected(Reason::PeerShare).get(),
    },
    Counted {
        begins: "the call table is full",
        of: "requests rejected",
        count: |shard| shard.proxy.calls_rejected.get(),
    },
    Counted {
        begins: "the transaction table is full",
        of: "requests rejected",
        count: |shard| shard.proxy.transactions_rejected.get(),
    },
    Counted {
        begins: "a source has used up its share of a table",
        of: "requests rejected",
        count: |shard| {
            let counters = &shard.proxy;
            counters.calls_over_share.get() + counters.transactions_over_share.get()
        },
    },
    Counted {
        begins: "the table of sources is full",
        of: "failed attempts to add a source",
        count: |shard| shard.proxy.overload.sources_overflowed.get(),
    },
    Counted {
        begins: "a receive buffer is full, and the kernel drops datagrams",
        of: "datagrams dropped",
        count: |shard| shard.io.overflow.get() + shard.emulated_overflow.get(),
    },
    Counted {
        begins: "a send buffer is full",
        of: "datagrams not sent",
        count: |shard| shard.io.send_full.get(),
    },
    Counted {
        begins: "the queue to another shard is full",
        of: "messages not passed on",
        count: |shard| shard.io.handoffs_lost.get(),
    },
    Counted {
        begins: "the queue of DNS queries is full",
        of: "queries not sent",
        count: |shard| shard.io.queries_lost.get(),
    },
    Counted {
        begins: "too many requests wait for the DNS or a look-up",
        of: "requests rejected",
        count: |shard| shard.proxy.replied_for(503, ReplyReason::Parked).get(),
    },
    Counted {
        begins: "the recording lacks inputs, because the disk is too slow or full, or has failed",
        of: "inputs lost",
        count: |shard| shard.recording.lost(),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the subjects of the log lines that the counters of `shard` cause, with the counts.
    fn counted(shard: &ShardCounters) -> Vec<(&'static str, u64)> {
        let each = COUNTED.iter().map(|counted| (counted.begins, (counted.count)(shard)));
        each.filter(|(_, count)| *count > 0).collect()
    }

    /// A regression: the log said that the transaction table was full.
    #[test]
    fn a_used_up_share_does_not_count_as_a_full_table() {
        let shard = ShardCounters::default();
        shard.proxy.calls_over_share.add(2);
        shard.proxy.transactions_over_share.add(3);
        shard.proxy.replied_for(503, ReplyReason::TransactionTable).add(3);
        assert_eq!(counted(&shard), [("a source has used up its share of a table", 5)]);
    }

    #[test]
    fn a_full_table_of_transactions_is_counted() {
        let shard = ShardCounters::default();
        shard.proxy.transactions_rejected.add(1);
        assert_eq!(counted(&shard), [("the transaction table is full", 1)]);
    }

    /// A regression: the log said only at the end of the process that its recording had ended.
    #[test]
    fn lost_inputs_of_a_recording_are_counted() {
        let shard = ShardCounters::default();
        shard.recording.written.add(1);
        assert!(counted(&shard).is_empty());
        shard.recording.unwritten.add(2);
        shard.recording.overrun.add(3);
        let [(begins, 5)] = counted(&shard)[..] else { panic!("{:?}", counted(&shard)) };
        assert!(begins.starts_with("the recording lacks inputs"), "{begins}");
    }

    /// A regression: the log did not say that requests to names and users were rejected.
    #[test]
    fn rejections_because_too_many_requests_wait_are_counted() {
        let shard = ShardCounters::default();
        shard.proxy.replied_for(503, ReplyReason::Parked).add(2);
        assert_eq!(counted(&shard), [("too many requests wait for the DNS or a look-up", 2)]);
    }

    #[test]
    fn rejections_because_of_feedback_are_counted() {
        let shard = ShardCounters::default();
        shard.proxy.rejected(Reason::Feedback).add(1);
        shard.proxy.rejected(Reason::PeerShare).add(2);
        assert_eq!(
            counted(&shard),
            [
                (
                    "every back end that a request could go to has asked for fewer requests \
                     (feedback)",
                    1
                ),
                ("a server that does not obey feedback has used up its share", 2),
            ]
        );
    }
}
