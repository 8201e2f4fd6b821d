//! Background threads that the file system or a reader of the log may block, and that must not
//! delay the end of the process.

use std::io;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

/// Maximum time for which the end of the process waits for a thread that the file system may block.
pub(crate) const END_WAIT: Duration = Duration::from_secs(1);

/// A background thread that is asked to end when this value is dropped. The drop waits for the end
/// of the thread, but at most [`END_WAIT`]. A thread that the file system still blocks then ends
/// with the process.
#[derive(Debug)]
pub struct Worker {
    end: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl Worker {
    /// Runs `work` on a new thread with this name. The receiver that `work` gets is disconnected
    /// when the thread should end.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        name: &str,
        work: impl FnOnce(&Receiver<()>) + Send + 'static,
    ) -> io::Result<Self> {
        let (end, asked) = bounded(0);
        let (running, ended) = bounded(0);
        let run = move || {
            // Nothing is ever sent. The drop at the end of the thread wakes the drop of `Worker`.
            let _running: Sender<()> = running;
            work(&asked);
        };
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { end: Some(end), ended })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.ended.recv_timeout(END_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_drop_waits_for_the_end_of_the_thread() {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let worker = Worker::start("test", move |asked| {
            let _ = asked.recv();
            done.store(true, Ordering::SeqCst);
        });
        drop(worker.unwrap());
        assert!(is_done.load(Ordering::SeqCst));
        assert_eq!(Arc::strong_count(&is_done), 1, "what the thread had is gone");
    }

    /// A regression: a stop waited without end for a file system that did not respond.
    #[test]
    fn a_drop_does_not_wait_for_a_thread_that_hangs() {
        let (go_on, hanging) = bounded::<()>(0);
        let hang = move |_: &Receiver<()>| {
            let _ = hanging.recv();
        };
        let worker = Worker::start("test", hang).unwrap();
        let (dropped, drops) = bounded(1);
        thread::spawn(move || {
            drop(worker);
            dropped.send(())
        });
        let is_dropped = drops.recv_timeout(Duration::from_secs(30));
        drop(go_on);
        assert_eq!(is_dropped, Ok(()));
    }
}
