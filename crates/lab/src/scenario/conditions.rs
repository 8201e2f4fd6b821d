//! The conditions of a run, and the list of conditions that can be swept.

use std::fmt;
use std::sync::Arc;

use tidegate_agent::{DevicesConfig, Process, Profile, Redial};
use tidegate_server::config::Emulate;
use tidegate_server::config::schema::{
    Absent, Documented, Knob, List, Real, Report, Section, Shape, Table, Whole,
};
use tidegate_world::Transport;
use toml::Spanned;
use toml::de::DeValue;

use super::farm::Farm;
use super::tables;
use super::workload::{Goodput, Hold};
use crate::cost::{self, Capacity};
use crate::disturbance::Disturbance;
use crate::network::{Fault, Tcp, Way};
use crate::topology::Topology;

/// The conditions of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// Offered load as a multiple of the capacity.
    pub load: f64,
    /// The process that determines the times at which calls arrive.
    pub arrivals: Process,
    /// The course of the offered rate over time.
    pub profile: Profile,
    /// Holding time of a call, in seconds.
    pub hold_s: f64,
    /// Distribution of the holding time.
    pub hold: Hold,
    /// Time in seconds after which a caller hangs up if the call is not answered.
    pub patience_s: f64,
    /// Longest set-up delay of a call that counts as goodput, in ms.
    pub deadline_ms: f64,
    /// The event at which a call counts as set up.
    pub goodput: Goodput,
    /// True if callers and answerers retransmit messages.
    pub retransmissions: bool,
    /// Maximum number of open calls to one server. `None` means a default limit. A run is
    /// not valid if the default limit prevents more than 1 % of the calls.
    pub open_max: Option<usize>,
    /// Maximum number of open calls in a closed loop. The next call waits while this number of
    /// calls is open. `None` means an open loop.
    pub open_limit: Option<usize>,
    /// True if callers send a call again to another server after one server has rejected it.
    pub failover: bool,
    /// Number of addresses from which the callers of one server call, not counting the trunk.
    pub sources: u32,
    /// The fraction of the calls, 0 to 1, that comes from one additional address, the trunk.
    pub trunk: f64,
    /// The behaviour of people whose call has failed. `None` means that people do not call again.
    pub redial: Option<Redial>,
    /// The fraction of all people, 0 to 1, who call an emergency service.
    pub emergency: f64,
    /// The devices that register, for all servers together. `None` means that no device registers.
    pub devices: Option<DevicesConfig>,
    /// T1 of RFC 3261 (the initial retransmission interval), in ms.
    pub t1_ms: f64,
    /// Number of answerers (called parties).
    pub answerers: u32,
    /// True if answerers send a 100 (Trying) before other responses.
    pub trying: bool,
    /// The maximum number of messages that wait in one queue.
    pub queue_max: u32,
    /// Emulated processing costs of messages at the servers under test.
    pub emulate: Emulate,
    /// Disturbances of the servers under test. Overload control gets no information about them.
    pub disturbance: Disturbance,
    /// The servers between callers and answerers, and the routes of calls through them.
    pub topology: Arc<Topology>,
    /// The farm from which the topology and some faults are generated. `None` means no farm.
    pub farm: Option<Farm>,
    /// The settings for TCP. `None` means that all messages travel over UDP.
    pub tcp: Option<Tcp>,
    /// Properties of the network links. If several links apply to a packet, the last one is used.
    pub links: Arc<[Way]>,
    /// Faults of servers and of the network.
    pub faults: Arc<[Fault]>,
}

/// A numeric condition that can be swept.
#[derive(Clone, Copy)]
pub struct Axis(&'static Swept);

struct Swept {
    /// Title of the condition with its unit, for the head of a table.
    title: &'static str,
    number: Number,
    set: fn(&mut Conditions, f64),
}

enum Number {
    Real(&'static Knob<Real>),
    Whole(&'static Knob<Whole>),
}

static AXES: [Swept; 13] = [
    Swept {
        title: "load",
        number: Number::Real(&tables::LOAD),
        set: |conditions, value| conditions.load = value,
    },
    Swept {
        title: "hold (s)",
        number: Number::Real(&tables::HOLD_S),
        set: |conditions, value| conditions.hold_s = value,
    },
    Swept {
        title: "patience (s)",
        number: Number::Real(&tables::PATIENCE_S),
        set: |conditions, value| conditions.patience_s = value,
    },
    Swept {
        title: "deadline (ms)",
        number: Number::Real(&tables::DEADLINE_MS),
        set: |conditions, value| conditions.deadline_ms = value,
    },
    Swept {
        title: "T1 (ms)",
        number: Number::Real(&tables::T1_MS),
        set: |conditions, value| conditions.t1_ms = value,
    },
    Swept {
        title: "answerers",
        number: Number::Whole(&tables::ANSWERERS),
        set: |conditions, value| conditions.answerers = value as u32,
    },
    Swept {
        title: "queue",
        number: Number::Whole(&tables::QUEUE_MAX),
        set: |conditions, value| conditions.queue_max = value as u32,
    },
    Swept {
        title: "INVITE : BYE",
        number: Number::Real(&tables::INVITE_TO_BYE),
        set: |conditions, value| cost::divide(&mut conditions.emulate, value),
    },
    Swept {
        title: "nodes",
        number: Number::Whole(&tables::NODES),
        set: |conditions, value| {
            conditions.change_farm(|farm| farm.nodes = value as usize);
        },
    },
    Swept {
        title: "pause (ms)",
        number: Number::Real(&tables::PAUSE_MS),
        set: |conditions, value| conditions.change_farm(|farm| farm.pause_ms = value),
    },
    Swept {
        title: "pause every (s)",
        number: Number::Real(&tables::PAUSE_EVERY_S),
        set: |conditions, value| conditions.change_farm(|farm| farm.pause_every_s = value),
    },
    Swept {
        title: "window (bytes)",
        number: Number::Whole(&tables::WINDOW_BYTES),
        set: |conditions, value| {
            conditions.change_tcp(|tcp| tcp.window_bytes = value as usize);
        },
    },
    Swept {
        title: "buffer (bytes)",
        number: Number::Whole(&tables::BUFFER_BYTES),
        set: |conditions, value| {
            conditions.change_tcp(|tcp| tcp.buffer_bytes = Some(value as usize));
        },
    },
];

/// The maximum number of values of one swept condition.
const VALUES_MAX: usize = 100;

impl Conditions {
    fn change_farm(&mut self, change: impl FnOnce(&mut Farm)) {
        let Some(farm) = &mut self.farm else { return };
        change(farm);
        self.topology = Arc::new(farm.topology());
    }

    fn change_tcp(&mut self, change: impl FnOnce(&mut Tcp)) {
        if let Some(tcp) = &mut self.tcp {
            change(tcp);
        }
    }

    /// Returns the transport of all SIP messages.
    pub fn transport(&self) -> Transport {
        match self.tcp {
            Some(_) => Transport::Tcp,
            None => Transport::Udp,
        }
    }
}

impl Capacity {
    /// Returns the capacity of the servers under test under `conditions`.
    pub fn under(conditions: &Conditions) -> Self {
        Self::of(&conditions.topology, &conditions.emulate, conditions.trying)
    }
}

impl Axis {
    /// The offered load.
    pub const LOAD: Self = Self(&AXES[0]);

    /// Returns every condition that can be swept.
    pub fn all() -> impl Iterator<Item = Self> {
        AXES.iter().map(Self)
    }

    /// Returns the key of the condition in a scenario.
    pub fn name(self) -> &'static str {
        self.documented().name()
    }

    /// Returns the title of the condition with its unit, as in the head of a table.
    pub fn title(self) -> &'static str {
        self.0.title
    }

    /// Sets this condition in `conditions` to `value`. The value must be valid for the condition's
    /// key in a scenario.
    pub fn set(self, conditions: &mut Conditions, value: f64) {
        (self.0.set)(conditions, value);
    }

    /// Reads the value of the condition from `section`, or returns the default value. The inner
    /// `None` means that the section has no value and the condition no default. The outer `None`
    /// means that an error was reported.
    pub(super) fn read(
        self,
        section: &Section<'_, '_>,
        report: &mut Report,
    ) -> Option<Option<f64>> {
        if self.is_optional() && section.names().all(|name| name != self.name()) {
            return Some(None);
        }
        match self.0.number {
            Number::Real(knob) => section.plain(knob, report),
            Number::Whole(knob) => section.plain(knob, report).map(|n| n as f64),
        }
        .map(Some)
    }

    /// Returns whether the condition is a key of `table`.
    pub(super) fn is_of(self, table: &Table) -> bool {
        table.names().any(|name| name == self.name())
    }

    /// Returns whether a scenario may omit the condition although it has no default value.
    fn is_optional(self) -> bool {
        matches!(self.documented().absent(), Absent::Means(_))
    }

    fn documented(self) -> &'static dyn Documented {
        match self.0.number {
            Number::Real(knob) => knob,
            Number::Whole(knob) => knob,
        }
    }

    /// Reads the swept values of the condition. Returns `None` when an error was reported.
    pub(super) fn read_list(
        self,
        value: &Spanned<DeValue<'_>>,
        report: &mut Report,
    ) -> Option<Vec<f64>> {
        match self.0.number {
            Number::Real(knob) => {
                let list = List { of: Real(knob.shape.0.clone()), count_max: VALUES_MAX };
                let values = list.read(self.name(), value, report)?;
                Some(values)
            }
            Number::Whole(knob) => {
                let list = List { of: Whole(knob.shape.0.clone()), count_max: VALUES_MAX };
                let values = list.read(self.name(), value, report)?;
                Some(values.into_iter().map(|n| n as f64).collect())
            }
        }
    }
}

impl PartialEq for Axis {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Debug for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
