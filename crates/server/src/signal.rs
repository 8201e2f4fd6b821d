//! Signals that ask the process to stop, or to read its configuration again.

use std::io;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, bounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator;

/// Requests to stop that wait to be read at the most; more say nothing new.
const WAITING_MAX: usize = 4;

/// A signal, and what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, from a service manager.
    Terminate,
    /// SIGINT, from a keyboard.
    Interrupt,
    /// SIGHUP: the configuration is to be read again.
    Reload,
}

/// Catches SIGTERM, SIGINT and SIGHUP as long as it lives.
#[derive(Debug)]
pub struct Signals {
    receiver: Receiver<Signal>,
    handle: iterator::Handle,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    /// Begins to catch signals. They are caught for the whole process.
    ///
    /// # Errors
    /// When the kernel or the thread limit refuses.
    pub fn catch() -> io::Result<Self> {
        let mut signals = iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let handle = signals.handle();
        let (sender, receiver) = bounded(WAITING_MAX);
        let thread = Builder::new().name("signal".to_owned()).spawn(move || {
            for number in &mut signals {
                let signal = match number {
                    SIGHUP => Signal::Reload,
                    SIGINT => Signal::Interrupt,
                    _ => Signal::Terminate,
                };
                // Full: the same is waiting to be read already.
                let _ = sender.try_send(signal);
            }
        })?;
        Ok(Self { receiver, handle, thread: Some(thread) })
    }

    /// Where they arrive: the first that asks to stop asks to drain, the second to stop at once.
    pub fn receiver(&self) -> &Receiver<Signal> {
        &self.receiver
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn signals_arrive_in_turn_and_no_longer_when_dropped() {
        let signals = Signals::catch().unwrap();
        let next = || signals.receiver().recv_timeout(Duration::from_secs(10)).unwrap();
        raise(SIGTERM).unwrap();
        assert_eq!(next(), Signal::Terminate);
        raise(SIGINT).unwrap();
        assert_eq!(next(), Signal::Interrupt);
        raise(SIGHUP).unwrap();
        assert_eq!(next(), Signal::Reload);
        let receiver = signals.receiver().clone();
        drop(signals);
        assert!(receiver.recv_timeout(Duration::from_secs(10)).is_err());
    }
}
