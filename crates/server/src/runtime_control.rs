//! Changes of a running process by operators: laws, administrative states of back ends, bans, and
//! the configuration.

mod control_error;
mod in_force;
mod reload;
mod wanted;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_balance::BackendRegistry;
use tidegate_io::{CommandSender, Stores};
use tidegate_proxy::Overload;
use tidegate_world::{COMMAND_MAX, Timestamp};

pub use self::control_error::ControlError;
use self::wanted::Wanted;
use crate::config::{self, Config, Found, command, overload_toml};
use crate::heavy::HeavySources;
use crate::metrics::collect::ShardCounters;
use crate::prepared::{Prepared, Reading};
use crate::removed::RemovedBackends;
use crate::tls::Tls;
use crate::{laws, recording, status};

/// Maximum time for which a response or a log line waits until the shards have applied a command.
pub(crate) const APPLY_WAIT: Duration = Duration::from_secs(2);

/// Time after which the servers of domains are sent to the shards again if a shard rejected them
/// for lack of room in a pool. The pause limits the load, because each attempt takes time in all
/// shards.
const FOUND_PAUSE: Duration = Duration::from_secs(10);

/// A sender of operators' commands to all shards, which also reports the settings in force.
pub struct RuntimeControl {
    registry: BackendRegistry,
    /// The state that operators want, as set by the last command or by the configuration. No thread
    /// waits for a file while it holds this lock, so commands do not wait for the file system.
    wanted: Mutex<Wanted>,
    /// A lock that is held during a reload. It lets one reload run at a time, so the second of two
    /// reloads reads the configuration file after the first one.
    reloading: Mutex<()>,
    /// True if the process is ending, so that reloads no longer wait for the shards.
    is_ending: AtomicBool,
    /// True if the last reload failed.
    has_reload_failed: AtomicBool,
    commands: CommandSender,
    shards: Vec<ShardCounters>,
    removed: Option<RemovedBackends>,
    prepared: Prepared,
    /// The data for look-ups of users, which a reload replaces.
    stores: Stores,
    /// The certificates and keys that listeners and pools use.
    tls: Option<Tls>,
    /// Maximum length of a command in bytes.
    command_max: usize,
}

impl RuntimeControl {
    pub(crate) fn new(
        config: Arc<Config>,
        registry: BackendRegistry,
        commands: CommandSender,
        shards: Vec<ShardCounters>,
        prepared: Prepared,
    ) -> Self {
        let overload = config.overload.clone();
        let wanted = Mutex::new(Wanted {
            config,
            found: Arc::default(),
            replaced_found: None,
            is_found_uncertain: false,
            found_again_at: Timestamp::ZERO,
            too_long: None,
            overload,
            given: 0,
            replaced: None,
            warnings: Vec::new(),
        });
        let (reloading, stores) = (Mutex::default(), Stores::default());
        Self {
            registry,
            wanted,
            reloading,
            is_ending: AtomicBool::new(false),
            has_reload_failed: AtomicBool::new(false),
            commands,
            shards,
            removed: None,
            prepared,
            stores,
            tls: None,
            command_max: COMMAND_MAX,
        }
    }

    /// Makes reloads also replace the users in `stores`, where the shards look them up.
    #[must_use]
    pub(crate) fn serving(self, stores: Stores) -> Self {
        Self { stores, ..self }
    }

    /// Makes reloads also read the TLS certificates and keys again.
    #[must_use]
    pub(crate) fn securing(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Makes reloads also record in `removed` the back ends that are no longer configured.
    #[must_use]
    pub(crate) fn noting(self, removed: RemovedBackends) -> Self {
        Self { removed: Some(removed), ..self }
    }

    /// Rejects commands that are too long for a recording of the process.
    #[must_use]
    pub(crate) fn recorded(self) -> Self {
        Self { command_max: recording::COMMAND_MAX, ..self }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the overload control laws as the operator's `text` says, and sends the resulting
    /// laws to the shards. Returns the number of the command, for [`was_heard`](Self::was_heard),
    /// and the new settings of overload control.
    ///
    /// # Errors
    /// Returns an error if the command is invalid or cannot be sent.
    pub fn steer(&self, text: &[u8]) -> Result<(u64, Overload), ControlError> {
        // Held until the command is sent, so that no other command comes in between.
        let mut wanted = self.wanted();
        let overload = command::asked(text, &wanted.overload).map_err(ControlError::Rejected)?;
        self.give(&mut wanted, overload_toml(&overload).as_bytes())?;
        wanted.overload = overload.clone();
        Ok((wanted.given, overload))
    }

    /// Sets the administrative state of the back end with the name or address `backend`.
    /// `admin_state` is `enable`, `drain` or `disable`. Returns the number of the command.
    ///
    /// # Errors
    /// Returns an error if no back end or several back ends match, if `admin_state` is another
    /// word, or if the command cannot be sent.
    pub fn assign(&self, backend: &str, admin_state: &str) -> Result<u64, ControlError> {
        let mut wanted = self.wanted();
        let found = self.registry.find_all(backend.strip_prefix("sip:").unwrap_or(backend));
        let names: Vec<_> = found.iter().map(|backend| backend.name().to_owned()).collect();
        let name = if let [name] = &names[..] { name.as_str() } else { backend };
        let command = command::admin_state_text(name, admin_state);
        command::given(command.as_bytes()).map_err(|wrong| ControlError::Rejected(wrong.into()))?;
        match names.len() {
            0 => {
                let config = wanted.found.expand(&wanted.config);
                let backends = config.pool.iter().flat_map(config::Pool::servers);
                let mut backends: Vec<_> = backends.map(identified).collect();
                // A server in several pools is listed once.
                backends.dedup();
                Err(ControlError::Unknown(backends))
            }
            1 => {
                self.give(&mut wanted, command.as_bytes())?;
                Ok(wanted.given)
            }
            _ => Err(ControlError::Ambiguous(names)),
        }
    }

    /// Ends the bans of the source with this address. Returns the number of the command.
    ///
    /// # Errors
    /// Returns an error when the command cannot be sent.
    pub fn unban(&self, address: IpAddr) -> Result<u64, ControlError> {
        let mut wanted = self.wanted();
        self.give(&mut wanted, command::unban_text(address).as_bytes())?;
        Ok(wanted.given)
    }

    /// Returns and removes the warnings about the configurations of reloads that all shards have
    /// applied.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.wanted().warnings)
    }

    /// Sends the servers that the DNS lists for the domains of the configuration to the shards.
    /// Sends them only if they have changed, or if a shard may have rejected the last ones for lack
    /// of room in a pool. Returns a log line for each changed domain.
    ///
    /// # Errors
    /// Returns an error when the command with the servers cannot be sent. Unless the command is too
    /// long, the next call of this function sends it again.
    pub(crate) fn follow_domains(&self, now: Timestamp) -> Result<Vec<String>, ControlError> {
        let mut wanted = self.wanted();
        let heard = wanted.replaced_found.take_if(|(command, _)| self.was_heard(*command));
        // A shard that has rejected a later command may have rejected this command before.
        let is_uncertain = |&(command, _): &(u64, _)| self.has_rejected_since(command);
        if let Some((command, before)) = heard.filter(is_uncertain) {
            if self.was_rejected(command) {
                wanted.found = before;
            }
            (wanted.is_found_uncertain, wanted.found_again_at) = (true, now + FOUND_PAUSE);
        }
        let found = Found::of(&self.registry.services());
        // Waits for the outcome of a reload: only the last rejection of a shard is known.
        let is_too_early = wanted.replaced.is_some() || now < wanted.found_again_at;
        let is_sent = found == *wanted.found && !wanted.is_found_uncertain;
        if is_too_early || is_sent || wanted.too_long.as_ref() == Some(&found) {
            return Ok(Vec::new());
        }
        let (text, found) = (found.text(), Arc::new(found));
        let lines = found.changes_since(&wanted.found).collect();
        if text.len() > self.command_max {
            wanted.too_long = Arc::into_inner(found);
            return Err(ControlError::TooManyServers {
                bytes: text.len(),
                limit: self.command_max,
            });
        }
        self.remember_tls(&wanted.config, &wanted.found);
        let config = Arc::clone(&wanted.config);
        let reading = Reading::new(text.as_bytes(), config, Arc::clone(&found));
        self.prepared.put(wanted.given + 1, reading, |command| self.was_heard(command));
        self.give(&mut wanted, text.as_bytes())?;
        let before = std::mem::replace(&mut wanted.found, found);
        wanted.replaced_found = Some((wanted.given, before));
        wanted.is_found_uncertain = false;
        Ok(lines)
    }

    /// Asks the shards for the call-table entries of a call. Returns the number of the command.
    /// When [`was_heard`](Self::was_heard) returns true for this number, [`calls`](Self::calls)
    /// returns the entries.
    ///
    /// # Errors
    /// Returns an error when the command cannot be sent.
    pub fn look_up(&self, call_id: &str) -> Result<u64, ControlError> {
        let mut wanted = self.wanted();
        self.give(&mut wanted, command::call_text(call_id).as_bytes())?;
        Ok(wanted.given)
    }

    /// Returns and removes the answers of the shards to the last [`look_up`](Self::look_up): the
    /// call-table entries of the call, and whether all shards have answered.
    pub fn calls(&self, call_id: &str) -> (Value, bool) {
        let answers = self.shards.iter().map(|shard| shard.proxy.call.take(call_id.as_bytes()));
        let answers: Vec<_> = answers.collect();
        let is_complete = answers.iter().all(Option::is_some);
        let entries = answers.into_iter().enumerate().flat_map(|(shard, entries)| {
            entries.into_iter().flatten().map(move |entry| status::call(shard, &entry))
        });
        (entries.collect(), is_complete)
    }

    /// Returns the back ends at `now`, pool by pool, as JSON.
    pub fn pools(&self, now: Timestamp) -> Value {
        status::pools(&self.registry, now)
    }

    fn give(&self, wanted: &mut Wanted, command: &[u8]) -> Result<(), ControlError> {
        self.commands.give(command).map_err(ControlError::CommandError)?;
        wanted.given += 1;
        Ok(())
    }

    /// Returns whether every shard has applied or rejected the command with this number. If this
    /// function has returned true, the caller also sees rejections: `last_rejected` of a shard that
    /// has rejected the command is then this number or a later one.
    pub(crate) fn was_heard(&self, number: u64) -> bool {
        let heard = |shard: &ShardCounters| {
            let in_force = &shard.proxy.in_force;
            in_force.commands.get() + in_force.commands_rejected.get() >= number
        };
        let is_heard = self.shards.iter().all(heard);
        fence(Ordering::Acquire);
        is_heard
    }

    /// Returns whether a shard has rejected the command with this number. Only the last rejected
    /// command of each shard is known.
    fn was_rejected(&self, number: u64) -> bool {
        self.shards.iter().any(|shard| shard.proxy.in_force.last_rejected.get() == number)
    }

    /// Returns whether a shard has rejected the command with this number or a later one.
    fn has_rejected_since(&self, number: u64) -> bool {
        self.shards.iter().any(|shard| shard.proxy.in_force.last_rejected.get() >= number)
    }

    /// Returns the laws, settings and signals in force at `now`, as JSON.
    pub fn read(&self, now: Timestamp) -> Value {
        let (overload, given) = {
            let wanted = self.wanted();
            (wanted.overload.clone(), wanted.given)
        };
        let shards = self.shards.iter().map(|counters| in_force::shard(counters, now));
        let heavy = HeavySources::of(&self.shards);
        json!({
            "law": laws::with_values(&overload.gate.law),
            "shadow": overload.gate.shadow.as_ref().map(laws::with_values),
            "configuration": overload_toml(&overload),
            "commands": given,
            "kernel_drops": heavy.target.name(),
            "heavy_sources": heavy.to_json(),
            "emergency_floods": heavy.emergency_floods(),
            "shards": shards.collect::<Value>(),
        })
    }
}

/// Returns the name of a back end, and its address if it differs from the name.
fn identified(backend: &config::Backend) -> String {
    let address = backend.endpoint.to_string();
    if address == backend.name { address } else { format!("{} at {address}", backend.name) }
}

#[cfg(test)]
mod tests;
