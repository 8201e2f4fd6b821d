//! Reloads of the configuration in a running process, one at a time.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::after;

use super::wanted::{Replaced, Wanted};
use super::{APPLY_WAIT, ControlError, RuntimeControl};
use crate::config::command::Rejected;
use crate::config::{Config, Diagnostics, Found, TlsFiles, needs_restart, overload_toml};
use crate::prepared::Reading;
use crate::{key, users};

/// Interval at which a reload checks whether the shards have applied or rejected it.
const LOOK: Duration = Duration::from_millis(1);

impl RuntimeControl {
    /// Reloads the configuration file. Replaces pools, routes and users, and the overload control
    /// laws if the file changes them. Waits at most two seconds until the shards have applied or
    /// rejected the reload. Returns whether all shards have applied it.
    ///
    /// Blocks until the previous reload has ended, and possibly for as long as the file system
    /// takes. So call this function on a thread of its own.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid or needs a restart, if a command cannot be
    /// sent, if a shard rejects the reload, or if a shard has not applied the previous reload. Then
    /// pools and routes are unchanged. But the laws may have changed, because a command of their
    /// own changes them first.
    pub fn reload(&self) -> Result<bool, ControlError> {
        let _turn = self.reload_turn();
        let reloaded = self.reload_in_turn();
        self.has_reload_failed.store(reloaded.is_err(), Ordering::Relaxed);
        reloaded
    }

    /// Returns whether the last reload failed, also if a shard rejected it after
    /// [`reload`](Self::reload) had returned. Returns `false` before the first reload.
    pub(crate) fn has_reload_failed(&self) -> bool {
        self.has_reload_failed.load(Ordering::Relaxed)
    }

    /// Does the work of [`reload`](Self::reload). The caller must hold the lock of
    /// [`reload_turn`](Self::reload_turn).
    fn reload_in_turn(&self) -> Result<bool, ControlError> {
        // Only the last rejected command of a shard is known. So the outcome of the previous reload
        // must be known before the next reload is sent.
        let last = self.wanted().replaced.as_ref().map(|replaced| replaced.command);
        if last.is_some_and(|last| !self.await_heard(last)) {
            return Err(ControlError::Unsettled);
        }
        self.settle_in_turn();
        let number = self.send_reload()?;
        let is_heard = self.await_heard(number);
        // When the reload is settled, another thread may send servers of domains. Even if a shard
        // rejects these servers soon, the result of `settle_in_turn` still shows a rejected reload.
        let is_rejected = self.settle_in_turn() || self.was_rejected(number);
        if is_rejected { Err(ControlError::NoRoom) } else { Ok(is_heard) }
    }

    /// Settles the last reload if its outcome was unknown when [`reload`](Self::reload) returned:
    /// undoes the reload if a shard has rejected it since. Waits for a running reload. Like a
    /// reload, this may take as long as the file system takes.
    pub(crate) fn settle(&self) {
        let _turn = self.reload_turn();
        self.settle_in_turn();
    }

    /// Makes all reloads return without waiting for the shards. Called when the process ends.
    pub(crate) fn stop_waiting(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    fn reload_turn(&self) -> MutexGuard<'_, ()> {
        self.reloading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every shard has applied or rejected the command with this number. Returns
    /// `false` if this takes longer than [`APPLY_WAIT`], or if the process ends first.
    fn await_heard(&self, number: u64) -> bool {
        let late = after(APPLY_WAIT);
        let mut is_over = false;
        while !is_over && !self.was_heard(number) && !self.is_ending.load(Ordering::Relaxed) {
            is_over = late.recv_timeout(LOOK).is_ok();
        }
        self.was_heard(number)
    }

    /// Reads the configuration file, and sends its content to the shards. Returns the number of the
    /// command with the configuration.
    pub(super) fn send_reload(&self) -> Result<u64, ControlError> {
        let wrong = |wrong: Diagnostics| ControlError::Rejected(wrong.into());
        // The file is parsed on this thread, so that no shard has to parse it, and without the
        // lock, so that other commands can be sent meanwhile.
        let before = Arc::clone(&self.wanted().config);
        let source = Config::source(&before.path).map_err(wrong)?;
        let (config, files) = if self.tls.is_some() {
            let read = Config::parse_with_files(&before.path, &source);
            read.map(|(config, files)| (config, Some(files))).map_err(wrong)?
        } else {
            (Config::parse(&before.path, &source).map_err(wrong)?, None)
        };
        let config = Arc::new(config);
        let restart = needs_restart(&before, &config);
        if !restart.is_empty() {
            return Err(ControlError::Rejected(Rejected::Restart(restart)));
        }
        if source.len() > self.command_max {
            return Err(ControlError::TooLong { bytes: source.len(), limit: self.command_max });
        }
        let found = Arc::clone(&self.wanted().found);
        let reading = Reading::new(&source, Arc::clone(&config), found);
        // The removed back ends are stored before the pools change. Otherwise a process that is
        // restarted at once would not know the back ends of existing calls.
        self.note_removed(&config)?;
        let sent = self.give_reload(&source, reading, files);
        if sent.is_err() {
            self.note_configured();
        }
        sent
    }

    /// Sends the overload control laws to the shards, if the new configuration changes them, and
    /// then the configuration, whose text is `source`. Returns the number of the command with the
    /// configuration.
    fn give_reload(
        &self,
        source: &[u8],
        mut reading: Reading,
        files: Option<TlsFiles>,
    ) -> Result<u64, ControlError> {
        let config = Arc::clone(&reading.config);
        let mut wanted = self.wanted();
        if !Arc::ptr_eq(&reading.found, &wanted.found) {
            reading = Reading::new(source, Arc::clone(&config), Arc::clone(&wanted.found));
        }
        let had = &wanted.config.overload.gate;
        let law = (config.overload.gate.law != had.law).then_some(config.overload.gate.law);
        let shadow = &config.overload.gate.shadow;
        let shadow = (*shadow != had.shadow).then_some(*shadow);
        if law.is_some() || shadow.is_some() {
            let mut overload = wanted.overload.clone();
            overload.gate.law = law.unwrap_or(overload.gate.law);
            overload.gate.shadow = shadow.unwrap_or(overload.gate.shadow);
            self.give(&mut wanted, overload_toml(&overload).as_bytes())?;
            wanted.overload = overload;
            // Set this now, so that the laws are not sent again if the second command cannot be
            // sent.
            Arc::make_mut(&mut wanted.config).overload = config.overload.clone();
        }
        self.prepared.put(wanted.given + 1, reading, |command| self.was_heard(command));
        let certificates = files.iter().flat_map(|files| &files.certificates);
        let now = key::unix_time();
        let warnings = certificates.filter_map(|certificate| certificate.warning(now));
        let warnings: Vec<_> = warnings.chain(config.warnings()).collect();
        self.remember_tls(&config, &wanted.found);
        // The certificates are replaced before the command is sent, because a shard that has the
        // command may connect to new back ends.
        let tls = self.tls.as_ref().zip(files).map(|(tls, files)| tls.replace(files));
        // The users are replaced before the command is sent, because a shard that has the command
        // forgets the answers of earlier look-ups and asks again.
        users::serve(&self.stores, &config);
        let config = std::mem::replace(&mut wanted.config, config);
        let replaced = Replaced { command: wanted.given + 1, config, tls, warnings };
        if let Err(not_given) = self.give(&mut wanted, source) {
            self.put_back(&mut wanted, replaced);
            return Err(not_given);
        }
        wanted.replaced = Some(replaced);
        Ok(wanted.given)
    }

    /// Restores the settings before the last reload if a shard has rejected the reload. If all
    /// shards have applied it, keeps its warnings for the log. Returns whether this call has
    /// restored the settings. The caller must hold the lock of [`reload_turn`](Self::reload_turn).
    fn settle_in_turn(&self) -> bool {
        let mut wanted = self.wanted();
        let heard = wanted.replaced.take_if(|replaced| self.was_heard(replaced.command));
        let Some(replaced) = heard else { return false };
        let is_rejected = self.was_rejected(replaced.command);
        if is_rejected {
            self.has_reload_failed.store(true, Ordering::Relaxed);
            self.put_back(&mut wanted, replaced);
            drop(wanted);
            self.note_configured();
        } else {
            wanted.warnings.extend(replaced.warnings);
        }
        is_rejected
    }

    /// Restores the settings before a reload that the shards have not executed. The caller must
    /// then call [`note_configured`](Self::note_configured).
    fn put_back(&self, wanted: &mut Wanted, replaced: Replaced) {
        let Replaced { config, tls, .. } = replaced;
        if let (Some(own), Some(tls)) = (&self.tls, tls) {
            own.replace(tls);
        }
        users::serve(&self.stores, &config);
        wanted.config = config;
    }

    /// Records the back ends of the present configuration as configured, after a failed reload may
    /// have recorded some of them as removed.
    fn note_configured(&self) {
        let config = Arc::clone(&self.wanted().config);
        // After an error here, the next process may treat configured back ends as removed.
        let _ = self.note_removed(&config);
    }

    /// Records the back ends that are not in `config` as removed, and the others as configured.
    fn note_removed(&self, config: &Config) -> Result<(), ControlError> {
        let Some(removed) = &self.removed else { return Ok(()) };
        let gone = removed.update(key::unix_time().as_secs(), config.backend_addresses());
        let unwritable = |error| ControlError::State(removed.path().to_owned(), error);
        let gone = gone.map_err(unwritable)?;
        if let Some(tls) = &self.tls {
            tls.set_removed(gone);
        }
        Ok(())
    }

    /// Remembers the TLS settings toward the present back ends. Called before a command that may
    /// remove some of them, so that requests of existing calls still reach them.
    /// `found` are the present servers of the domains.
    pub(super) fn remember_tls(&self, config: &Config, found: &Found) {
        if let Some(tls) = &self.tls {
            let keep = config.server.removed_backend;
            tls.remember(&self.registry, found, key::unix_time(), keep);
        }
    }

    /// Blocks reloads until the returned guard is dropped, as a file system that hangs would.
    #[cfg(test)]
    pub(crate) fn hang(&self) -> impl Sized {
        self.reload_turn()
    }
}
