//! Unix signals that stop the process or reload its configuration.

use std::io;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, bounded};
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM,
};
use signal_hook::iterator;

/// Maximum number of queued stop requests. Further requests have no effect.
const WAITING_MAX: usize = 4;

/// Signals that Tidegate ignores. Without a handler they would end the process without a message.
const IGNORED: [(i32, &str); 6] = [
    (SIGUSR1, "SIGUSR1"),
    (SIGUSR2, "SIGUSR2"),
    (SIGALRM, "SIGALRM"),
    (SIGVTALRM, "SIGVTALRM"),
    (SIGPROF, "SIGPROF"),
    (SIGIO, "SIGIO"),
];

/// A receiver of SIGTERM, SIGINT, SIGQUIT and SIGHUP. While this value exists, it also catches
/// signals that Tidegate ignores, such as SIGUSR1, which would otherwise end the process. SIGPIPE
/// needs no handler, because every Rust program ignores it.
///
/// Stop requests, reload requests and ignored signals have separate queues, so that many signals of
/// one kind do not displace those of another kind.
#[derive(Debug)]
pub struct Signals {
    stops: Receiver<()>,
    reloads: Receiver<()>,
    ignored: Receiver<&'static str>,
    handle: iterator::Handle,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    /// Starts to catch signals for the whole process. SIGHUP is a request to reload.
    ///
    /// # Errors
    /// Returns an error if the kernel does not allow this, or if a thread cannot be started.
    pub fn catch() -> io::Result<Self> {
        Self::catch_all(false)
    }

    /// Starts to catch signals for a program without a configuration to reload. SIGHUP, which a
    /// closed terminal sends, is then a request to stop.
    ///
    /// # Errors
    /// Returns the errors of [`catch`](Self::catch).
    pub fn catch_stops() -> io::Result<Self> {
        Self::catch_all(true)
    }

    fn catch_all(hangup_stops: bool) -> io::Result<Self> {
        let requests = [SIGTERM, SIGINT, SIGQUIT, SIGHUP];
        let all = requests.into_iter().chain(IGNORED.map(|(number, _)| number));
        let mut signals = iterator::Signals::new(all)?;
        let handle = signals.handle();
        let (stop, stops) = bounded(WAITING_MAX);
        let (reload, reloads) = bounded(1);
        let (ignore, ignored) = bounded(IGNORED.len());
        let thread = Builder::new().name("signal".to_owned()).spawn(move || {
            let mut unnamed = IGNORED.to_vec();
            for number in &mut signals {
                // If the queue is full, it already contains a request of the same kind.
                let _ = match number {
                    SIGTERM | SIGINT | SIGQUIT => stop.try_send(()).is_ok(),
                    SIGHUP if hangup_stops => stop.try_send(()).is_ok(),
                    SIGHUP => reload.try_send(()).is_ok(),
                    _ => match unnamed.iter().position(|(ignored, _)| *ignored == number) {
                        Some(index) => ignore.try_send(unnamed.swap_remove(index).1).is_ok(),
                        None => true,
                    },
                };
            }
        })?;
        Ok(Self { stops, reloads, ignored, handle, thread: Some(thread) })
    }

    /// Returns the queue of requests to stop: SIGTERM from a service manager, SIGINT and SIGQUIT
    /// from a keyboard. By convention, the first request drains the process, and the second stops
    /// it at once.
    pub fn stops(&self) -> &Receiver<()> {
        &self.stops
    }

    /// Returns the queue of requests to reload (SIGHUP). While one request waits, further requests
    /// have no effect.
    pub fn reloads(&self) -> &Receiver<()> {
        &self.reloads
    }

    /// Returns the queue of the names of ignored signals. A name is added when the signal arrives
    /// for the first time.
    pub fn ignored(&self) -> &Receiver<&'static str> {
        &self.ignored
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

    /// Signals concern the whole process, so one test covers all of them.
    #[test]
    fn each_kind_of_signal_arrives_despite_others_and_none_after_the_drop() {
        const WAIT: Duration = Duration::from_secs(10);
        let signals = Signals::catch().unwrap();
        // Many signals of one kind do not block another kind.
        for _ in 0..50 {
            raise(SIGHUP).unwrap();
            std::thread::yield_now();
        }
        for number in [SIGTERM, SIGINT, SIGQUIT] {
            raise(number).unwrap();
            assert_eq!(signals.stops().recv_timeout(WAIT), Ok(()), "{number}");
        }
        assert_eq!(signals.reloads().recv_timeout(WAIT), Ok(()));
        for (number, name) in IGNORED {
            raise(number).unwrap();
            assert_eq!(signals.ignored().recv_timeout(WAIT), Ok(name));
            raise(number).unwrap();
        }
        raise(SIGTERM).unwrap();
        assert_eq!(signals.stops().recv_timeout(WAIT), Ok(()), "by then the others were heard too");
        assert!(signals.ignored().is_empty(), "each is named once");
        let stops = signals.stops().clone();
        drop(signals);
        assert!(stops.recv_timeout(WAIT).is_err());
    }
}
