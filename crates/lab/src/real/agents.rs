//! Callers and answerers, each on a socket and a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, AnswererStats, Caller, CallerConfig, CallerStats};
use tidegate_io::Limits;
use tidegate_world::{Pool, Seed};

use super::core_thread::{CoreThread, Done, Socket};
use super::watched::Watched;
use crate::timeline::CallersReading;

/// Maximum delay with which the driver may handle a datagram. Because of this delay, one wake of
/// the driver serves several datagrams.
const SLACK: Duration = Duration::from_micros(200);

/// Returns the limits of a driver that has one socket for many callers or answerers.
fn limits() -> Limits {
    Limits { coalesce: SLACK, gso: false, ..Limits::default() }
}

/// A group of callers that share one loopback address.
pub struct Callers {
    thread: CoreThread<CallerStats>,
    /// The counts after the latest input of the callers. The callers' thread writes them.
    reading: Arc<Mutex<CallersReading>>,
}

impl Callers {
    /// Time between the creation of the callers and the start of their load. In this time their
    /// driver starts.
    pub(crate) const LEAD: Duration = Duration::from_millis(20);

    /// Starts the callers. `configure` returns their configuration for a given source address.
    /// `element` distinguishes these callers from others with the same seed.
    ///
    /// # Errors
    /// Returns an error when a socket or a thread cannot be created, or the configuration is
    /// invalid.
    pub fn start(
        configure: impl FnOnce(SocketAddr) -> CallerConfig,
        seed: Seed,
        element: u32,
    ) -> io::Result<Self> {
        let reading = Arc::new(Mutex::new(CallersReading::default()));
        let shown = Arc::clone(&reading);
        let socket = Socket::open(false)?;
        let config = CallerConfig { slack: SLACK, ..configure(socket.local()) };
        let start = socket.now() + Self::LEAD;
        // An invalid configuration is reported here, and not by the thread.
        Caller::new(config.clone(), seed, element, start, Pool::new())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let make = move |pool| {
            let caller =
                Caller::new(config, seed, element, start, pool).expect("it was possible just now");
            Watched::new(caller, move |caller: &Caller| {
                *shown.lock().unwrap_or_else(PoisonError::into_inner) = caller.stats().into();
            })
        };
        let stats = |watched: Watched<Caller, _>| watched.into_inner().stats().clone();
        let thread = CoreThread::start("caller", socket, limits(), make, stats)?;
        Ok(Self { thread, reading })
    }

    /// Returns the current counts of the callers.
    pub fn reading(&self) -> CallersReading {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the callers immediately, even if calls are open.
    ///
    /// # Errors
    /// Returns an error when a socket failed while the callers were calling.
    pub fn finish(self) -> io::Result<Done<CallerStats>> {
        self.thread.finish()
    }
}

/// Called parties that answer calls, each at an address of its own.
pub struct Answerers(Vec<CoreThread<AnswererStats>>);

impl Answerers {
    /// Starts `count` answerers. `configure` returns the configuration of one answerer. It gets the
    /// answerer's number, counted from 0, and its address.
    ///
    /// # Errors
    /// Returns an error when a socket or a thread cannot be created.
    pub fn start(
        count: usize,
        configure: impl Fn(usize, SocketAddr) -> AnswererConfig,
        seed: Seed,
    ) -> io::Result<Self> {
        let start = |element: usize| {
            let socket = Socket::open(false)?;
            let config = configure(element, socket.local());
            let element = 1 + element as u32;
            let make = move |pool| Answerer::new(config, seed, element, pool);
            CoreThread::start("answerer", socket, limits(), make, |answerer: Answerer| {
                answerer.stats()
            })
        };
        (0..count).map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Returns the addresses of the answerers.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().map(CoreThread::local)
    }

    /// Returns the CPU time that each answerer has used so far.
    ///
    /// # Errors
    /// Returns an error when an answerer has ended because its socket failed.
    pub fn cpu(&self) -> io::Result<Vec<Duration>> {
        self.0.iter().map(CoreThread::cpu).collect()
    }

    /// Stops the answerers immediately.
    ///
    /// # Errors
    /// Returns an error when a socket failed while the answerers were answering.
    pub fn finish(self) -> io::Result<Vec<Done<AnswererStats>>> {
        self.0.into_iter().map(CoreThread::finish).collect()
    }
}
