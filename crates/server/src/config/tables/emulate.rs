//! `[emulate]`.

use std::time::Duration;

use tidegate_world::Work;

use crate::config::by_class::ByClass;
use crate::config::keys::table;
use crate::config::shape::{As, Real, Whole};

table! {
    /// Emulates a server that is slower than this machine, for experiments. Each shard has an
    /// emulated processor that charges each message in model time. The resulting messages are sent
    /// when that time has passed. A cost is a number of microseconds for every message, or a table
    /// by message class.
    pub static EMULATE: "[emulate]" 0..=1, Restart, [] => Emulate, EmulateDraft;

    /// The cost of reading a message from the receive buffer. With `queue = "fifo"` a message costs
    /// this even if the queue is full and the message is lost.
    receive("receive_us"): Duration = As {
        of: Real(0.0..=3_600_000_000.0),
        read: |us| Duration::from_secs_f64(us / 1e6),
        write: |time| time.as_nanos() as f64 / 1e3,
    }, Default("0");
    /// The cost of classifying a message and deciding whether to admit it.
    offer("offer_us"): [Duration; Work::CLASSES_MAX] = ByClass, Default("0");
    /// The cost of serving a message.
    serve("serve_us"): [Duration; Work::CLASSES_MAX] = ByClass, Default("0");
    /// The cost of serving a message without transactions.
    serve_stateless("serve_stateless_us"): [Duration; Work::CLASSES_MAX] | None =
        ByClass, Means("as `serve_us`");
    /// The cost of rejecting a message.
    refuse("refuse_us"): [Duration; Work::CLASSES_MAX] = ByClass, Default("0");
    /// The number of datagrams that an emulated receive buffer can hold.
    socket_max: usize = Whole(1..=1_000_000), Default("2048");
}
