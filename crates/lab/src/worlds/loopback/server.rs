//! The servers of a run, each a process, and their faults.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::outcome::NodeOutcome;
use crate::real::Tidegate;
use crate::run_spec::RunSpec;
use crate::timeline::{ServerReading, Timeline};
use crate::topology::Next;
use crate::worlds::counted;

/// All servers, by their indices in the topology.
pub(super) struct Servers<'p> {
    program: &'p Path,
    folder: &'p Path,
    run: &'p RunSpec,
    seats: Vec<CoreThread>,
}

/// A server's process and its files.
struct CoreThread {
    process: Option<Tidegate>,
    is_stopped: bool,
    address: SocketAddr,
    targets: Vec<SocketAddr>,
    /// Folder of its key, which outlives it.
    state_dir: TempDir,
    past: NodeOutcome,
    cpu: Duration,
}

/// An action on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Ends it at once.
    Kill(usize),
    /// Starts it again at its address.
    Start(usize),
    /// Gives it no processor.
    Stop(usize),
    /// Gives it the processor again.
    Continue(usize),
}

impl<'p> Servers<'p> {
    /// Starts all servers of `run`, each after its targets. Their files go into `folder`.
    pub fn start(
        program: &'p Path,
        folder: &'p Path,
        run: &'p RunSpec,
        answerers: &[SocketAddr],
    ) -> Result<Self, String> {
        let topology = &run.conditions.topology;
        let mut servers = Self { program, folder, run, seats: Vec::new() };
        let mut seats: Vec<Option<CoreThread>> = topology.nodes().iter().map(|_| None).collect();
        for place in topology.downstream_first() {
            let node = &topology.nodes()[place];
            let targets = node.to.iter().flat_map(|next| match *next {
                Next::Answerers => answerers.to_vec(),
                Next::Node(next) => seats[next].iter().map(|seat| seat.address).collect(),
            });
            let mut seat = CoreThread {
                process: None,
                is_stopped: false,
                // Any free port.
                address: (Ipv4Addr::LOCALHOST, 0).into(),
                targets: targets.collect(),
                state_dir: tempfile::tempdir().map_err(|error| error.to_string())?,
                past: NodeOutcome::new(&node.name),
                cpu: Duration::ZERO,
            };
            servers.run(place, &mut seat)?;
            seats[place] = Some(seat);
        }
        servers.seats = seats.into_iter().flatten().collect();
        Ok(servers)
    }

    /// Returns the address of the server at index `place`.
    pub fn address(&self, place: usize) -> SocketAddr {
        self.seats[place].address
    }

    /// Samples all servers that can answer.
    pub fn look(&self, at: Duration, timeline: &mut Timeline) -> Result<(), String> {
        for (place, seat) in self.seats.iter().enumerate() {
            if let Some(process) = seat.process.as_ref().filter(|_| !seat.is_stopped) {
                let status = process.status().map_err(|error| silent(process, &error))?;
                timeline.server(place, at, ServerReading::of(&status));
            }
        }
        Ok(())
    }

    /// Applies a step to a server. A step that does not fit one that is down is ignored.
    pub fn suffer(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Kill(place) => self.seats[place].end(Tidegate::kill),
            Step::Start(place) if self.seats[place].process.is_none() => {
                let mut seats = std::mem::take(&mut self.seats);
                let started = self.run(place, &mut seats[place]);
                self.seats = seats;
                started
            }
            Step::Start(_) => Ok(()),
            Step::Stop(place) | Step::Continue(place) => {
                let seat = &mut self.seats[place];
                let Some(process) = &seat.process else { return Ok(()) };
                seat.is_stopped = matches!(step, Step::Stop(_));
                process.stall(seat.is_stopped);
                Ok(())
            }
        }
    }

    /// Stops all. Returns the outcomes of messages at each, and their total CPU time.
    pub fn finish(mut self) -> Result<(Vec<NodeOutcome>, Duration), String> {
        for seat in &mut self.seats {
            if let Some(process) = seat.process.as_ref().filter(|_| seat.is_stopped) {
                process.stall(false);
            }
            seat.is_stopped = false;
            seat.end(|process| process.stop().map(|_| ()))?;
        }
        let cpu = self.seats.iter().map(|seat| seat.cpu).sum();
        Ok((self.seats.into_iter().map(|seat| seat.past).collect(), cpu))
    }

    /// Starts the process of a server.
    fn run(&self, place: usize, seat: &mut CoreThread) -> Result<(), String> {
        let state_dir = Some(seat.state_dir.path());
        let text = self.run.configuration(place, state_dir, seat.address, &seat.targets);
        let name = counted::configuration_name(&self.run.conditions.topology, place);
        let file: PathBuf = self.folder.join(name);
        let process = Tidegate::start(self.program, &file, &text).map_err(|e| e.to_string())?;
        seat.address = process.address();
        seat.process = Some(process);
        Ok(())
    }
}

impl CoreThread {
    /// Keeps the counts of the process, and ends it.
    fn end(&mut self, how: impl FnOnce(Tidegate) -> io::Result<()>) -> Result<(), String> {
        let Some(process) = self.process.take() else { return Ok(()) };
        // A stopped one cannot answer.
        if !self.is_stopped {
            let status = process.status().map_err(|error| silent(&process, &error))?;
            self.past.add(&status);
        }
        self.is_stopped = false;
        self.cpu += process.cpu().map_err(|error| silent(&process, &error))?;
        how(process).map_err(|error| format!("Tidegate: {error}"))
    }
}

fn silent(process: &Tidegate, error: &io::Error) -> String {
    format!("Tidegate: {error}; it said:\n{}", process.said())
}
