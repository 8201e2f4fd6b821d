//! The log of a running process.
//!
//! A separate thread writes the lines, because the reader of standard error may stall. The main
//! thread, which handles the signals, waits for the writing thread only at the end of the process,
//! and only for a limited time.

use std::io::{self, Write};
use std::mem;

use crossbeam_channel::{Sender, bounded};
use tidegate_server::Worker;

/// Maximum number of lines that wait to be written, except the last lines of the process.
const WAITING_MAX: usize = 1024;

/// Number of further places in the queue. They are for the last lines of the process, and for lines
/// that report missing lines.
const LAST_MAX: usize = 16;

/// A writer of log lines. Its drop waits until all lines are written, but only for a limited time.
#[derive(Debug)]
pub struct LogWriter {
    /// The queue of lines. It is dropped before the thread, which ends when it has written all
    /// lines.
    lines: Sender<String>,
    _thread: Worker,
    /// Number of lines that had no place in the queue, and that no line in the log reports yet.
    missing: u64,
}

impl LogWriter {
    /// Starts the thread that writes the lines to `to`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(mut to: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = bounded::<String>(WAITING_MAX + LAST_MAX);
        let thread = Worker::start("log", move |_| {
            for line in waiting {
                // A closed standard error is no reason to stop serving calls.
                let _ = to.write_all(line.as_bytes());
            }
        })?;
        Ok(Self { lines, _thread: thread, missing: 0 })
    }

    /// Adds a line to the log, and returns at once. Returns `false` if [`WAITING_MAX`] lines wait.
    /// Then the line is missing, and a later line contains the number of missing lines.
    pub fn say(&mut self, line: &str) -> bool {
        let has_room = self.lines.len() < WAITING_MAX;
        if has_room {
            self.say_last(line);
        } else {
            self.missing += 1;
        }
        has_room
    }

    /// Adds one of the last lines of the process, for which there is room even if many lines wait.
    pub fn say_last(&mut self, line: &str) {
        let missing = mem::take(&mut self.missing);
        if missing > 0 {
            let why = "lines are missing here, because they could not be written in time";
            self.send(&format!("{why}: {missing}"));
        }
        self.send(line);
    }

    fn send(&mut self, line: &str) {
        let line = format!("tidegate: {line}\n");
        let is_sent = self.lines.try_send(line).is_ok();
        self.missing += u64::from(!is_sent);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    use crossbeam_channel::Receiver;

    use super::*;

    /// A reader of the log that stalls until the other end of `stalled` is dropped.
    #[derive(Clone)]
    struct Reader {
        stalled: Receiver<()>,
        bytes: Arc<Mutex<Vec<u8>>>,
    }

    impl Reader {
        fn new() -> (Sender<()>, Self) {
            let (stall, stalled) = bounded(0);
            (stall, Self { stalled, bytes: Arc::default() })
        }

        fn text(&self) -> String {
            String::from_utf8(self.bytes.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.stalled.recv();
            self.bytes.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_lines_are_written_in_order_before_the_end() {
        let (stall, reader) = Reader::new();
        drop(stall);
        let mut log = LogWriter::start(reader.clone()).unwrap();
        for number in 0..500 {
            assert!(log.say(&number.to_string()));
        }
        log.say_last("stopped");
        drop(log);
        let mut expected: String = (0..500).map(|number| format!("tidegate: {number}\n")).collect();
        expected += "tidegate: stopped\n";
        assert_eq!(reader.text(), expected);
    }

    #[test]
    fn missing_lines_are_reported_when_there_is_room_again() {
        let (stall, reader) = Reader::new();
        let mut log = LogWriter::start(reader.clone()).unwrap();
        while log.say("calls") {}
        drop(stall);
        log.say_last("stopped");
        drop(log);
        let text = reader.text();
        let end = "tidegate: calls\n\
                   tidegate: lines are missing here, because they could not be written in time: 1\n\
                   tidegate: stopped\n";
        assert!(text.ends_with(end), "{text}");
    }

    /// A regression: while the reader of standard error stalled, no signal had an effect.
    #[test]
    fn a_reader_that_stalls_blocks_neither_the_caller_nor_the_end() {
        let (stall, reader) = Reader::new();
        let mut log = LogWriter::start(reader).unwrap();
        let (ended, ends) = bounded(1);
        thread::spawn(move || {
            while log.say("calls") {}
            log.say_last("stopped");
            drop(log);
            ended.send(())
        });
        let is_ended = ends.recv_timeout(Duration::from_secs(30));
        drop(stall);
        assert_eq!(is_ended, Ok(()));
    }
}
