//! Runs a [`Core`] on a socket and a thread of its own.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::bounded;
use rustix::time::{ClockId, clock_gettime};
use tidegate_io::{Clock, Counters, Drive, Group, Handoffs, Limits, Listen, Shard, Stop, open};
use tidegate_world::{Core, Pool, Timestamp};

use super::cpu;

/// A bound loopback socket, and the clock of the core that uses the socket.
pub(crate) struct Socket {
    group: Group,
    clock: Clock,
}

impl Socket {
    /// Opens a socket on a free port. If `split` is true, the kernel keeps INVITEs in a receive
    /// buffer of their own.
    pub(crate) fn open(split: bool) -> io::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let group = open(&Listen { split, ..Listen::new(any) }).map_err(io::Error::other)?;
        Ok(Self { group, clock: Clock::start() })
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.group.local()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// The final counts of a core whose thread has ended, and the time that the thread used.
#[derive(Clone, Debug)]
pub struct Done<S> {
    /// The counts of the core.
    pub stats: S,
    /// CPU time of the core's thread.
    pub cpu: Duration,
    /// Time from the start of the core's thread to its end.
    pub wall: Duration,
    /// Number of datagrams that the core's socket lost or could not send.
    pub drops: u64,
}

/// A thread that drives a core. Dropping a `CoreThread` stops the thread.
pub(crate) struct CoreThread<S> {
    local: SocketAddr,
    stop: Stop,
    /// Folder of the thread in `/proc`.
    task: PathBuf,
    thread: Option<JoinHandle<io::Result<Done<S>>>>,
}

impl<S: Send + 'static> CoreThread<S> {
    /// Starts a thread that drives the core that `make` returns. `limits` are the limits of the
    /// driver. When the thread is stopped, it ends at once, without draining the core. `stats` then
    /// returns the counts of the core.
    pub(crate) fn start<C: Core>(
        name: &str,
        socket: Socket,
        limits: Limits,
        make: impl FnOnce(Pool) -> C + Send + 'static,
        stats: impl FnOnce(C) -> S + Send + 'static,
    ) -> io::Result<Self> {
        let local = socket.local();
        let stop = Stop::new();
        let asked = stop.clone();
        let (told, heard) = bounded(1);
        let run = move || {
            // The thread that started this one waits for this path.
            let _ = told.send(fs::read_link("/proc/thread-self"));
            let began = socket.clock.now();
            let counters = Arc::new(Counters::default());
            // The core is created on its own thread.
            let pool = Pool::new();
            let mut drive = Drive::new(Shard {
                clock: socket.clock,
                limits: Limits { drain: Duration::ZERO, ..limits },
                listeners: vec![socket.group.listener(0)],
                handoffs: Handoffs::alone()?,
                counters: Arc::clone(&counters),
                stop: asked,
                pool: pool.clone(),
            })?;
            let mut core = make(pool);
            drive.run(&mut core)?;
            let cpu = clock_gettime(ClockId::ThreadCPUTime);
            Ok(Done {
                stats: stats(core),
                // The clock counts from zero, so neither field is negative.
                cpu: Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32),
                wall: socket.clock.now().since(began),
                drops: counters.overflow.get() + counters.send_dropped(),
            })
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        // If an error follows, dropping this value stops the thread.
        let mut started = Self { local, stop, task: PathBuf::new(), thread: Some(thread) };
        let task = heard.recv().map_err(io::Error::other)??;
        started.task = Path::new("/proc").join(task);
        Ok(started)
    }

    /// Returns the local address of the socket.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the CPU time that the thread has used so far.
    ///
    /// # Errors
    /// Returns an error when the thread has ended.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        cpu::of_thread(&self.task)
    }

    /// Stops the thread immediately.
    ///
    /// # Errors
    /// Returns an error when the socket of the thread failed.
    pub(crate) fn finish(mut self) -> io::Result<Done<S>> {
        self.stop.request();
        let thread = self.thread.take().expect("it is taken only here");
        thread.join().map_err(|_| io::Error::other("a node panicked"))?
    }
}

impl<S> Drop for CoreThread<S> {
    fn drop(&mut self) {
        self.stop.request();
    }
}
