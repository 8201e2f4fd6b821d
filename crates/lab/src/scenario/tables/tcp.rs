//! `[tcp]`: all messages travel over TCP.

use tidegate_server::config::schema::{Table, Whole};

pub(in crate::scenario) static TCP: Table = Table {
    header: "[tcp]",
    name: "tcp",
    doc: "With this table, all messages travel over TCP. Without it, they travel over UDP. Each \
          sender has one connection to each receiver. A server under test that is busy does not \
          read, so its peers have to wait when the buffers of their connections are full. The \
          table may be empty. It works only in simulated time.",
    knobs: || vec![&WINDOW_BYTES, &BUFFER_BYTES],
    ..Table::EMPTY
};

knobs! {
    /// Receive window: the bytes of a connection that may be in flight or wait in the kernel of the
    /// receiver. The receiver reads at most this number of bytes at a time.
    WINDOW_BYTES "window_bytes": Whole = Whole(256..=67_108_864), Default("65_536");
    /// Send buffer: the bytes of a connection that wait in the kernel of the sender. Up to 64 KiB
    /// more wait in the driver of the sender. Further messages wait in the sender's own queue for
    /// the connection.
    BUFFER_BYTES "buffer_bytes": Whole = Whole(256..=67_108_864), Means("`window_bytes`");
}
