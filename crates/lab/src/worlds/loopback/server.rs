//! Runs the servers of a run, each in its own process, and applies their faults.

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

/// All servers of a run, in the order of the topology.
pub(super) struct Servers<'p> {
    program: &'p Path,
    folder: &'p Path,
    run: &'p RunSpec,
    processes: Vec<ServerProcess>,
}

/// A server of a run, with its current process and the counts of its previous processes.
struct ServerProcess {
    process: Option<Tidegate>,
    stalls: Stalls,
    address: SocketAddr,
    targets: Vec<SocketAddr>,
    /// Folder of the server's secret key. A restarted process uses the same folder.
    state_dir: TempDir,
    past: NodeOutcome,
    cpu: Duration,
    /// Number of processes that were started for this server.
    lives: u64,
}

/// A fault, or the end of a fault, of the server with the given index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Kills the process of the server immediately.
    Kill(usize),
    /// Starts the process of the server again, at the same address.
    Start(usize),
    /// Suspends the process of the server until the given time after the start of the load.
    Stop(usize, Duration),
    /// Ends the stalls of the server that last until the given time. The process continues unless a
    /// longer stall is in progress.
    Continue(usize, Duration),
}

/// The stalls of a process, which may overlap. The process is suspended until all of them have
/// ended, as in simulated time.
#[derive(Clone, Copy, Debug, Default)]
struct Stalls {
    /// End of the stall that ends last, or `None` while the process is not suspended.
    until: Option<Duration>,
}

impl Stalls {
    /// Begins a stall that lasts until `until`. Returns whether the process must now be suspended.
    fn begin(&mut self, until: Duration) -> bool {
        let was_stopped = self.until.is_some();
        self.until = self.until.max(Some(until));
        !was_stopped
    }

    /// Ends the stalls that last until `at`. Returns whether the process must now continue.
    fn end(&mut self, at: Duration) -> bool {
        let is_over = self.until.is_some_and(|until| until <= at);
        if is_over {
            self.until = None;
        }
        is_over
    }

    fn is_stopped(self) -> bool {
        self.until.is_some()
    }
}

impl<'p> Servers<'p> {
    /// Starts all servers of `run`. A server is started after its next hops. The configurations of
    /// the servers are written into `folder`.
    pub fn start(
        program: &'p Path,
        folder: &'p Path,
        run: &'p RunSpec,
        answerers: &[SocketAddr],
    ) -> Result<Self, String> {
        let topology = &run.conditions.topology;
        let mut servers = Self { program, folder, run, processes: Vec::new() };
        let mut processes: Vec<Option<ServerProcess>> =
            topology.nodes().iter().map(|_| None).collect();
        for place in topology.downstream_first() {
            let node = &topology.nodes()[place];
            let targets = node.to.iter().flat_map(|next| match *next {
                Next::Answerers => answerers.to_vec(),
                Next::Node(next) => processes[next].iter().map(|server| server.address).collect(),
            });
            let mut server = ServerProcess {
                process: None,
                stalls: Stalls::default(),
                // The port 0 stands for any free port.
                address: (Ipv4Addr::LOCALHOST, 0).into(),
                targets: targets.collect(),
                state_dir: tempfile::tempdir().map_err(|error| error.to_string())?,
                past: NodeOutcome::new(&node.name),
                cpu: Duration::ZERO,
                lives: 0,
            };
            servers.run(place, &mut server)?;
            processes[place] = Some(server);
        }
        servers.processes = processes.into_iter().flatten().collect();
        Ok(servers)
    }

    /// Returns the address of the server at index `place`.
    pub fn address(&self, place: usize) -> SocketAddr {
        self.processes[place].address
    }

    /// Adds to `timeline` the counts of all servers that run and are not suspended.
    pub fn sample(&self, at: Duration, timeline: &mut Timeline) -> Result<(), String> {
        for (place, server) in self.processes.iter().enumerate() {
            if let Some(process) = server.process.as_ref().filter(|_| !server.stalls.is_stopped()) {
                let status = process.status().map_err(|error| silent(process, &error))?;
                timeline.server(place, at, ServerReading::of(&status, server.lives));
            }
        }
        Ok(())
    }

    /// Applies a step to its server. A step other than [`Step::Start`] has no effect on a server
    /// that is down. [`Step::Start`] has no effect on a server that is up.
    pub fn apply(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Kill(place) => self.processes[place].end(Tidegate::kill),
            Step::Start(place) if self.processes[place].process.is_none() => {
                let mut processes = std::mem::take(&mut self.processes);
                let started = self.run(place, &mut processes[place]);
                self.processes = processes;
                started
            }
            Step::Start(_) => Ok(()),
            Step::Stop(place, _) | Step::Continue(place, _) => {
                let server = &mut self.processes[place];
                let Some(process) = &server.process else { return Ok(()) };
                match step {
                    Step::Stop(_, until) if server.stalls.begin(until) => process.stall(true),
                    Step::Continue(_, at) if server.stalls.end(at) => process.stall(false),
                    _ => {}
                }
                Ok(())
            }
        }
    }

    /// Stops all servers. Returns the counts of each server, and the CPU time that all servers used
    /// together.
    pub fn finish(mut self) -> Result<(Vec<NodeOutcome>, Duration), String> {
        for server in &mut self.processes {
            server.end(|process| process.stop().map(|_| ()))?;
        }
        let cpu = self.processes.iter().map(|server| server.cpu).sum();
        Ok((self.processes.into_iter().map(|server| server.past).collect(), cpu))
    }

    /// Starts a process for `server`, the server at index `place`.
    fn run(&self, place: usize, server: &mut ServerProcess) -> Result<(), String> {
        let state_dir = Some(server.state_dir.path());
        let text = self.run.configuration(place, state_dir, server.address, &server.targets);
        let name = counted::configuration_name(&self.run.conditions.topology, place);
        let file: PathBuf = self.folder.join(name);
        let process = Tidegate::start(self.program, &file, &text).map_err(|e| e.to_string())?;
        server.address = process.address();
        server.process = Some(process);
        server.lives += 1;
        Ok(())
    }
}

impl ServerProcess {
    /// Adds the counts of the process to those of the server, and then ends the process with `how`.
    fn end(&mut self, how: impl FnOnce(Tidegate) -> io::Result<()>) -> Result<(), String> {
        let Some(process) = self.process.take() else { return Ok(()) };
        // A stopped process cannot answer `/status`, and its counts would be lost.
        if std::mem::take(&mut self.stalls).is_stopped() {
            process.stall(false);
        }
        let status = process.status().map_err(|error| silent(&process, &error))?;
        self.past.add(&status)?;
        self.cpu += process.cpu().map_err(|error| silent(&process, &error))?;
        how(process).map_err(|error| format!("Tidegate: {error}"))
    }
}

fn silent(process: &Tidegate, error: &io::Error) -> String {
    format!("Tidegate: {error}; it said:\n{}", process.said())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_stopped_until_the_last_of_its_stalls_ends() {
        let s = Duration::from_secs;
        let mut stalls = Stalls::default();
        assert!(stalls.begin(s(5)), "it is stopped");
        assert!(!stalls.begin(s(3)) && !stalls.begin(s(7)), "it is stopped already");
        assert!(!stalls.end(s(3)) && !stalls.end(s(5)) && stalls.is_stopped());
        assert!(stalls.end(s(7)) && !stalls.is_stopped());
        // The end of a stall that began before a crash does not end a stall of the next process.
        let mut next = Stalls::default();
        assert!(!next.end(s(7)) && next.begin(s(9)) && !next.end(s(8)) && next.end(s(9)));
    }
}
