//! A proxy that executes the commands of operators.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use tidegate_balance::BackendRegistry;
use tidegate_control::BanList;
use tidegate_proxy::{Counters, Proxy, networks_of};
use tidegate_world::{Core, Timestamp, delegate};

use crate::config::command::{Command, Laws, given, is_by_operator};
use crate::config::{Config, Found};
use crate::key;
use crate::pools::pool_settings;
use crate::prepared::{Prepared, Reading};

/// A [`Proxy`] that executes the commands of operators, such as a reload of the configuration.
pub struct Reconfigurable {
    proxy: Proxy,
    /// The configuration in force.
    config: Arc<Config>,
    /// The servers that the DNS lists for the domains in `config`.
    found: Arc<Found>,
    registry: BackendRegistry,
    bans: BanList,
    counters: Arc<Counters>,
    prepared: Prepared,
    /// The number of commands received so far.
    heard: u64,
}

impl Reconfigurable {
    /// Wraps `proxy`, which has the configuration `config` and counts events in `counters`. The
    /// back ends of the proxy are in `registry`, and its bans in `bans`. `prepared` may contain
    /// configurations that the sender of a reload command has already parsed.
    pub(crate) fn new(
        proxy: Proxy,
        config: Arc<Config>,
        registry: BackendRegistry,
        bans: BanList,
        counters: Arc<Counters>,
        prepared: Prepared,
    ) -> Self {
        let found = Arc::default();
        Self { proxy, config, found, registry, bans, counters, prepared, heard: 0 }
    }

    /// Returns the proxy.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Executes a command. Returns `false` if the proxy has no room for the back ends of a reload.
    fn apply(&mut self, now: Timestamp, command: Command) -> bool {
        match command {
            Command::Laws(laws) => {
                let Laws { law, shadow } = *laws;
                self.proxy.switch(now, law, shadow);
                true
            }
            Command::AdminState(backend, admin_state) => {
                self.registry.assign(now, self.heard, &backend, admin_state);
                true
            }
            Command::Unban(address) => {
                self.bans.lift(now, self.heard, networks_of(address));
                true
            }
            Command::Reload(config) => {
                let (config, found) = (Arc::new(*config), Arc::clone(&self.found));
                self.reload(now, &Reading::new(b"", config, found))
            }
            Command::Found(found) => {
                let (config, found) = (Arc::clone(&self.config), Arc::new(found));
                self.reload(now, &Reading::new(b"", config, found))
            }
            Command::Call(call_id) => {
                self.proxy.look_up(now, call_id.as_bytes());
                true
            }
        }
    }
}

impl Reconfigurable {
    fn reload(&mut self, now: Timestamp, reading: &Reading) -> bool {
        let Reading { config, found, expanded, pool_specs, .. } = reading;
        // The registry adds and removes back ends for all shards, so this shard checks first that
        // it has room for them.
        let sizes = pool_specs.iter().map(|pool| (pool.name.as_str(), pool.backends.len()));
        if !self.proxy.has_slots(sizes) {
            return false;
        }
        let pools = self.registry.enlist(now, self.heard, pool_specs);
        let routes = expanded.route.clone();
        let is_done = self.proxy.reload(now, pool_settings(&pools, expanded), routes);
        if is_done {
            (self.config, self.found) = (Arc::clone(config), Arc::clone(found));
        }
        is_done
    }
}

impl Core for Reconfigurable {
    /// Executes a command in the format of [`crate::config::command`] or of [`key::command`].
    fn on_command(&mut self, now: Timestamp, command: &[u8]) {
        // Some commands do not reach the proxy, but take time too.
        self.proxy.discard_measurements();
        self.heard += 1;
        let in_force = &self.counters.in_force;
        if key::command::is_about_keys(command) {
            match key::command::given(command) {
                Some(keys) => self.proxy.rekey(&keys),
                None => in_force.commands_rejected.add(1),
            }
            return;
        }
        // The sender validates commands. So an invalid command comes only from a recording that
        // another version has made.
        let number = in_force.commands.get() + in_force.commands_rejected.get() + 1;
        let is_applied = match self.prepared.get(number, command) {
            Some(reading) => self.reload(now, &reading),
            None => given(command).is_ok_and(|command| self.apply(now, command)),
        };
        let in_force = &self.counters.in_force;
        if !is_applied {
            in_force.last_rejected.set(number);
        }
        if is_by_operator(command) {
            let counter = match is_applied {
                true => &in_force.operator_commands,
                false => &in_force.operator_commands_rejected,
            };
            counter.add(1);
        }
        // A thread that sees the new count must also see the new `last_rejected`.
        fence(Ordering::Release);
        if is_applied { &in_force.commands } else { &in_force.commands_rejected }.add(1);
    }

    delegate!(self.proxy, but on_command);
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use tidegate_control::{Ban, BanCause};
    use tidegate_world::{Flow, Load, Pool, Received};

    use super::*;
    use crate::config::command::{admin_state_text, call_text, unban_text};
    use crate::testing::{SMALL, assemble, at_ms};

    const OPTIONS: &[u8] = b"OPTIONS sip:bob@127.0.0.1 SIP/2.0\r\n\
        Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-1\r\n\
        From: <sip:alice@192.0.2.1>;tag=1\r\n\
        To: <sip:bob@127.0.0.1>\r\n\
        Call-ID: a\r\n\
        CSeq: 1 OPTIONS\r\n\
        Max-Forwards: 70\r\n\
        Content-Length: 0\r\n\r\n";

    #[test]
    fn look_ups_of_calls_and_servers_of_domains_are_no_commands_of_operators() {
        let configuration = SMALL.replace("127.0.0.1:0", "127.0.0.1:5060");
        let config = Config::parse(Path::new("f"), configuration.as_bytes()).unwrap();
        let assembly = assemble(&config);
        let mut core = assembly.part(0).core(Pool::new());
        let in_force = &assembly.counters()[0].proxy.in_force;
        let domain = "[[found]]\ndomain = \"example.com\"\ntransport = \"udp\"\nservers = []\n";
        let servers = Found::given(domain).unwrap();
        for (command, by_operators) in [
            (call_text("a@192.0.2.1"), [0, 0]),
            (Found::default().text(), [0, 0]),
            (servers.text(), [0, 0]),
            (admin_state_text("127.0.0.1:9", "drain"), [1, 0]),
            (unban_text("192.0.2.1".parse().unwrap()), [2, 0]),
            (configuration, [3, 0]),
            ("[overload]\nlaw = \"of a later version\"\n".to_owned(), [3, 1]),
        ] {
            core.on_command(Timestamp::ZERO, command.as_bytes());
            let counts = [&in_force.operator_commands, &in_force.operator_commands_rejected];
            let counts = counts.map(|counter| counter.get());
            assert_eq!(counts, by_operators, "{command}");
        }
        assert_eq!((in_force.commands.get(), in_force.commands_rejected.get()), (6, 1));
    }

    /// A regression: the service time of the last message included the time for a command that does
    /// not reach the proxy.
    #[test]
    fn a_command_does_not_count_as_service() {
        let configuration = SMALL.replace("127.0.0.1:0", "127.0.0.1:5060");
        let config = Config::parse(Path::new("f"), configuration.as_bytes()).unwrap();
        for command in [None, Some(unban_text("192.0.2.1".parse().unwrap()))] {
            let assembly = assemble(&config);
            let pool = Pool::new();
            let mut core = assembly.part(0).core(pool.clone());
            let flow =
                Flow::udp("127.0.0.1:5060".parse().unwrap(), "192.0.2.1:5060".parse().unwrap());
            core.offer(at_ms(1), Received::new(at_ms(1), flow, pool.copy(OPTIONS)));
            assert!(core.serve(at_ms(1)));
            if let Some(command) = &command {
                core.on_command(at_ms(2), command.as_bytes());
            }
            core.serve(at_ms(9));
            core.on_load(at_ms(9), Load::default());
            let costs = &assembly.counters()[0].proxy.overload.costs;
            let is_measured = costs.iter().any(|cost| cost.get() > 0);
            assert_eq!(is_measured, command.is_none());
        }
    }

    /// A regression: a recording did not contain the end of a ban by an operator, so its replay
    /// dropped the requests of the source.
    #[test]
    fn a_command_ends_the_bans_of_a_source_and_of_its_networks() {
        let configuration = SMALL.replace("127.0.0.1:0", "127.0.0.1:5060");
        let config = Config::parse(Path::new("f"), configuration.as_bytes()).unwrap();
        let assembly = assemble(&config);
        let mut core = assembly.part(0).core(Pool::new());
        let until = Timestamp::ZERO + Duration::from_secs(60);
        let address = "2001:db8::7".parse().unwrap();
        let sources: Vec<_> = networks_of(address).collect();
        for &source in sources.iter().chain(&[1]) {
            let ban = Ban { source, until, cause: BanCause::Rate, rate: 1, is_proven: false };
            assert!(assembly.bans().ban(Timestamp::ZERO, ban));
        }
        core.on_command(Timestamp::ZERO, unban_text(address).as_bytes());
        let bans = assembly.bans().each(Timestamp::ZERO);
        assert_eq!(bans.iter().map(|ban| ban.source).collect::<Vec<_>>(), [1]);
    }
}
