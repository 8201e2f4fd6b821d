//! `[tcp]`: all messages travel over TCP.

use tidegate_server::config::schema::{Absent, Knob, Table, Whole};

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

pub(in crate::scenario) static WINDOW_BYTES: Knob<Whole> = Knob {
    name: "window_bytes",
    shape: Whole(256..=67_108_864),
    absent: Absent::Default("65_536"),
    doc: "Receive window: the bytes of a connection that may be in flight or wait in the kernel of \
          the receiver. The receiver reads at most this number of bytes at a time.",
};

pub(in crate::scenario) static BUFFER_BYTES: Knob<Whole> = Knob {
    name: "buffer_bytes",
    shape: Whole(256..=67_108_864),
    absent: Absent::Means("`window_bytes`"),
    doc: "Send buffer: the bytes of a connection that wait in the kernel of the sender. Up to 64 \
          KiB more wait in the driver of the sender. Further messages wait in the sender's own queue \
          for the connection.",
};
