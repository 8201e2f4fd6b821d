//! Runs a server on its own socket, between callers and answerers.

use std::io;
use std::time::Duration;

use tidegate_agent::{AnswererConfig, CallerConfig, Load};
use tidegate_io::Limits;
use tidegate_world::{Pool, Seed, unit_enum};

use super::fit::Outside;
use super::metered::{Metered, Metering, Tally};
use super::slices::Slice;
use super::{OPEN_LIMIT, OPEN_MAX, Parameters};
use crate::measure::{REJECTS, server};
use crate::real::{Answerers, Callers, CoreThread, Socket};

/// Time that a run waits after the last call for packets that are still in flight.
const TAIL: Duration = Duration::from_millis(200);

unit_enum! {
    /// The kind of calls in a run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Action {
        /// Calls that are set up and ended.
        Calls = "a call",
        /// Calls that ring until their callers cancel.
        GivenUp = "a call given up",
        /// Calls rejected with 503.
        Rejected = "a rejected call",
        /// Calls whose INVITEs are dropped.
        Dropped = "a dropped call",
    }
}

impl Action {
    /// Returns the configuration table `[overload]` of the server. To make the server reject or
    /// drop calls, the law's target is so low that any load exceeds it. The law then admits one
    /// call in ten thousand.
    fn overload(self) -> String {
        let rejecting = |disposal| {
            format!(
                "law = \"occupancy\"\ndisposal = \"{disposal}\"\n\
                 params = {{ measure = 1, {REJECTS} }}\n"
            )
        };
        match self {
            Self::Calls | Self::GivenUp => "law = \"none\"\n".to_owned(),
            Self::Rejected => rejecting("reject"),
            Self::Dropped => rejecting("drop"),
        }
    }

    /// Returns the maximum number of open calls. The maximum is higher for a longer slice, in which
    /// the server handles more calls.
    fn open_max(self, slice: Slice) -> usize {
        let open_max = ((OPEN_MAX as f64 * slice.length()) as usize).clamp(OPEN_MAX, OPEN_LIMIT);
        match self {
            Self::Calls | Self::Rejected => open_max,
            // These calls last as long as the patience of their callers, so more of them are open.
            Self::GivenUp => 2 * open_max,
            // The callers of these calls get no answer and retransmit for half a minute. A limit on
            // open calls would soon stop the load.
            Self::Dropped => usize::MAX,
        }
    }
}

/// The counts and CPU times of one run.
pub(super) struct Played {
    pub tally: Tally,
    /// Number of calls that were started or, for dropped calls, number of INVITEs that the server
    /// received.
    units: u64,
    /// CPU time of the server's thread, without the CPU time of the measurement itself, in ns.
    cpu_ns: f64,
    /// The part of its allowed CPU time that the server used while calls were offered.
    pub server_load: f64,
    pub generator_load: f64,
    pub drops: u64,
}

impl Played {
    /// Returns the CPU time of the server for one call, or for one dropped INVITE, in µs.
    pub(crate) fn each_us(&self) -> f64 {
        self.cpu_ns / 1e3 / self.units.max(1) as f64
    }

    /// Scales all CPU times so that a call costs the same as in `whole`, a run that differs only in
    /// that it rarely reads the clock. Keeps the smaller server load and the larger generator load
    /// of the two runs, and adds up the datagrams that they lost.
    pub(crate) fn take_level_of(&mut self, whole: &Self) {
        let factor = whole.each_us() / self.each_us();
        if factor.is_finite() {
            self.cpu_ns *= factor;
            self.tally.scale(factor);
        }
        self.server_load = self.server_load.min(whole.server_load);
        self.generator_load = self.generator_load.max(whole.generator_load);
        self.drops += whole.drops;
    }

    /// Returns the number of packets of the run, and the CPU time that the server's thread spent
    /// outside the core.
    pub fn outside(&self) -> Outside {
        Outside {
            received: self.tally.received,
            sent: self.tally.sent(),
            ns: (self.cpu_ns - self.tally.ns() as f64).max(0.0),
        }
    }
}

/// Runs a server for `seconds` under calls of the kind `action`.
pub(super) fn play(
    action: Action,
    metering: Metering,
    parameters: &Parameters,
    rate_cps: f64,
    seconds: f64,
    seed: u64,
) -> io::Result<Played> {
    let seed = Seed(seed);
    let slice = Slice::of(parameters.quota);
    // A caller that cancels must do so before the answer.
    let ring = if action == Action::GivenUp { Duration::from_secs(60) } else { Duration::ZERO };
    let answerer = |_, local| AnswererConfig { ring: ring.into(), ..AnswererConfig::new(local) };
    let answerers = Answerers::start(1, answerer, seed)?;
    let backend = answerers.addresses().next().expect("one was started");
    let socket = Socket::open(true)?;
    let (ends, mode) = ([socket.local(), backend], parameters.mode);
    let thread = CoreThread::start(
        "server",
        socket,
        Limits::default(),
        move |pool: Pool| {
            Metered::new(server(ends, mode, &action.overload(), seed, pool), metering, slice)
        },
        Metered::into_tally,
    )?;
    let lasts = Duration::from_secs_f64(seconds);
    let load = Load { rate_cps, calls: u32::MAX, duration: lasts, ..Load::default() };
    let target = thread.local();
    let configure = |local| {
        let patience = Duration::from_millis(if action == Action::GivenUp { 50 } else { 60_000 });
        let open_max = action.open_max(slice);
        CallerConfig {
            load,
            open_max,
            patience: patience.into(),
            ..CallerConfig::new(local, target)
        }
    };
    let callers = Callers::start(configure, seed, 0)?;
    let at_start = thread.cpu();
    std::thread::sleep(Callers::LEAD + lasts);
    // The load ends now. The server still works on messages that wait.
    let at_end = thread.cpu();
    std::thread::sleep(TAIL);
    let calls = callers.finish()?;
    let served = thread.finish()?;
    // The measurement itself counts too, because the server also pauses for the time that it takes.
    let used = at_end?.saturating_sub(at_start?);
    let answered = answerers.finish()?;
    let use_of = |cpu: Duration, wall: Duration| cpu.as_secs_f64() / wall.as_secs_f64();
    let answerer = answered.iter().map(|done| use_of(done.cpu, done.wall)).fold(0.0, f64::max);
    Ok(Played {
        units: match action {
            Action::Dropped => served.stats.received,
            _ => calls.stats.begun,
        },
        cpu_ns: served.cpu.as_nanos() as f64 - served.stats.metering_ns as f64,
        tally: served.stats,
        server_load: use_of(used, lasts.mul_f64(slice.share())),
        generator_load: use_of(calls.cpu, calls.wall).max(answerer),
        // Callers that get no answers send more than any server can read. Datagrams lost at the
        // socket cost the server nothing, and are not counted.
        drops: calls.drops
            + if action == Action::Dropped { 0 } else { served.drops }
            + answered.iter().map(|done| done.drops).sum::<u64>(),
    })
}
