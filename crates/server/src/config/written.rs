//! Writes tables of a configuration as TOML with all their keys, in a form that can be read again.

use std::fmt;

use tidegate_balance::Learning;
use tidegate_control::Decide;
use tidegate_proxy::{Overload, Queueing};
use tidegate_world::{Kind, Values};

use super::Config;
use super::keys::Keys;
use super::knob::{Reload, Table};
use super::tables::connections::ConnectionsDraft;
use super::tables::emulate::{Emulate, EmulateDraft};
use super::tables::limit::Limit;
use super::tables::listen::ListenDraft;
use super::tables::overload::{DECIDE, PARAMS, QUEUE, SHADOW_PARAMS};
use super::tables::pool::Selection;
use super::tables::resolver::{Resolver, ResolverDraft};
use super::tables::server::{AdminDraft, ServerDraft};
use super::tables::sources::SourcesTable;

/// A table of a configuration, with the values of its keys as TOML.
pub(super) struct Written {
    pub table: &'static Table,
    pub keys: Vec<WrittenKey>,
}

/// A key with its value as TOML.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrittenKey {
    pub name: &'static str,
    pub value: String,
    pub reload: Reload,
    /// True if the value is the default of the key.
    pub is_default: bool,
}

impl Written {
    /// Returns the table of which `T` has the values, with each key that has a value in `all`.
    pub(super) fn of<T: Keys>(all: &T) -> Self {
        let key = |entry: &&'static dyn super::keys::Entry<T>| {
            let (value, reload) = (entry.write(all)?, entry.reload().unwrap_or(Reload::Restart));
            let is_default = entry.default().as_ref() == Some(&value);
            Some(WrittenKey { name: entry.name(), value, reload, is_default })
        };
        Self { table: T::table(), keys: T::entries().iter().filter_map(key).collect() }
    }

    /// Returns `table` with the parameters of a law or a policy as its keys.
    fn params<K: Kind>(table: &'static Table, values: &Values<K>) -> Self {
        let key = |(param, value): (&tidegate_world::Param, f64)| WrittenKey {
            name: param.name,
            value: value.to_string(),
            reload: Reload::Live,
            is_default: value == param.default,
        };
        Self { table, keys: values.each().map(|(param, value)| key((param, value))).collect() }
    }

    /// Returns the table as an inline TOML table, in braces.
    fn inline(&self) -> String {
        let keys: Vec<_> = self.keys.iter().map(ToString::to_string).collect();
        format!("{{ {} }}", keys.join(", "))
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.table.header)?;
        self.keys.iter().try_for_each(|key| writeln!(f, "{key}"))
    }
}

impl fmt::Display for WrittenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, self.value)
    }
}

/// Returns these tables of a configuration: `[server]`, `[admin]`, `[resolver]`, `[[listen]]`,
/// `[connections]`, `[overload]` with its inner tables, and `[emulate]`.
pub(super) fn config(config: &Config) -> Vec<Written> {
    let Config { server, admin, listen, connections, overload, emulate, name_servers, .. } = config;
    let servers = (!name_servers.is_empty()).then(|| name_servers.clone());
    let mut tables = vec![
        Written::of(&ServerDraft::from(server)),
        Written::of(&AdminDraft::from(admin)),
        Written::of(&ResolverDraft::from(&Resolver { servers })),
    ];
    tables.extend(listen.iter().map(|listen| Written::of(&ListenDraft::from(listen))));
    tables.push(Written::of(&ConnectionsDraft::from(connections)));
    tables.extend(self::overload(overload));
    tables.extend(emulate.iter().map(|emulate| Written::of(&EmulateDraft::from(emulate))));
    tables
}

/// Returns the table `[overload]` and its inner tables.
pub(super) fn overload(overload: &Overload) -> Vec<Written> {
    let mut tables = vec![Written::of(overload), Written::params(&PARAMS, &overload.gate.law)];
    if let Some(shadow) = &overload.gate.shadow {
        tables.push(Written::of(&overload.gate.shadow));
        tables.push(Written::params(&SHADOW_PARAMS, shadow));
    }
    tables.push(Written::of(&overload.gate.sessions));
    tables.push(Written::of(&overload.feedback));
    let sources = &overload.sources;
    tables.push(Written::of(&SourcesTable::from(overload)));
    tables.extend(sources.weights.iter().map(Written::of));
    tables.extend(sources.limits.iter().map(Written::of));
    tables.extend(sources.priority.iter().map(Written::of));
    tables
}

/// Returns the table `[overload]` and its inner tables, as TOML.
pub fn overload_toml(overload: &Overload) -> String {
    let tables: Vec<_> = self::overload(overload).iter().map(ToString::to_string).collect();
    tables.join("\n")
}

/// Returns the table `[emulate]` as TOML.
pub fn emulate_toml(emulate: &Emulate) -> String {
    Written::of(&EmulateDraft::from(emulate)).to_string()
}

/// Returns the keys of `[[pool]]` that determine how back ends are selected, as TOML.
pub fn selection_toml(selection: &Selection) -> String {
    let params = match selection {
        Selection::One(values) => {
            Written::params(&super::tables::pool::POOL_PARAMS, values).inline()
        }
        Selection::Fork => "{}".to_owned(),
    };
    format!("policy = \"{}\"\nparams = {params}\n", selection.name())
}

/// Returns the settings for learned limits as TOML: the key `limit` of a `[[pool]]`.
pub fn learning_toml(learning: &Learning) -> String {
    let limit = Written::of(&Limit::from(learning));
    format!("limit = {}\n", limit.inline())
}

/// Returns the value of the key `decide` for this [`Decide`].
pub fn decide_word(decide: Decide) -> &'static str {
    DECIDE.word(decide)
}

/// Returns the value of the key `queue` for this [`Queueing`].
pub fn queue_word(queue: Queueing) -> &'static str {
    QUEUE.word(queue)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_balance::{RateLaw, RateLearning, WindowLaw, WindowLearning};
    use tidegate_proxy::Class;

    use super::*;

    const PLACES: &str = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n\
                          [[pool]]\nname = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1\"\n";

    #[test]
    fn a_written_policy_reads_back_unchanged() {
        for keys in ["policy = \"tlwl\"\nparams = { invite = 2.5 }\n", "policy = \"fork\"\n"] {
            let text =
                |keys: &str| PLACES.replace("name = \"app\"\n", &format!("name = \"app\"\n{keys}"));
            let read = |text: &str| {
                let config = Config::parse(Path::new("f"), text.as_bytes());
                config.unwrap_or_else(|e| panic!("{e}")).pool.remove(0).policy
            };
            let policy = read(&text(keys));
            assert_eq!(read(&text(&selection_toml(&policy))), policy);
        }
    }

    #[test]
    fn learned_limits_read_back_as_written() {
        let rate = RateLearning {
            law: RateLaw::Aimd,
            interval: std::time::Duration::from_millis(70),
            increase: 0.125,
            decrease: 0.75,
            rate_min_cps: 2.5,
        };
        let window = WindowLearning {
            delay: std::time::Duration::from_millis(30),
            ..WindowLearning::default()
        };
        let sre = RateLearning { law: RateLaw::Sre, ..RateLearning::default() };
        let by = |law| Some(WindowLearning { law, ..WindowLearning::default() });
        let windows = [None, Some(window)].into_iter().chain(WindowLaw::ALL.map(by));
        for window in windows {
            for rate in [None, Some(rate), Some(sre)] {
                let learning = Learning { rate, window };
                let keys = format!("name = \"app\"\n{}", learning_toml(&learning));
                let text = PLACES.replace("name = \"app\"\n", &keys);
                let config = Config::parse(Path::new("f"), text.as_bytes());
                let pool = config.unwrap_or_else(|e| panic!("{e}")).pool.remove(0);
                assert_eq!(pool.learning, learning);
            }
        }
    }

    #[test]
    fn written_configurations_read_back_unchanged() {
        let given = "[overload]\nlaw = \"pi\"\ndecide = \"service\"\nqueue = \"fifo\"\n\
                     throttle = \"random\"\ndisposal = \"drop\"\noccupancy = \"cpu\"\n\
                     sticky = false\nmemory_max = 5000\nparams = { c_t = 0.85, k_ic = 3 }\n\
                     [emulate]\nreceive_us = 2.25\noffer_us = 100.5\nsocket_max = 7\n\
                     socket_bytes = 9000\nwake_us = 1.5\nbatch = 3\nbatch_fifo = 5\nquota = 0.25\n\
                     period_ms = 5\ntick_ms = 4\n\
                     distribution = \"hyperexponential:4\"\nseed = 7\n\
                     serve_us = { default = 700, invite = 0.125 }\n";
        let parse = |text: &str| {
            let text = PLACES.to_owned() + text;
            Config::parse(Path::new("f"), text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
        };
        let single = "[overload]\nclasses = \"single\"\nreinvites = true\n\
                      throttle = \"leaky-bucket\"\nburst = 9\nretry_after = [0, 7]\n\
                      pad = 512\n[overload.sessions]\ncheck = \"full\"\n\
                      interval_ms = 50\nweight = 0.5\nrate_cps = 7.5\nrate_min_cps = 0.25\n\
                      [emulate]\n";
        let multi = "[overload]\nclasses = \"multi\"\nshed = [\"bye\", \"final\"]\n\
                     shed_by = \"count\"\nthrottle = \"gapping\"\n[emulate]\n";
        let scaled = "[overload]\nscaled = true\n[emulate]\n";
        let sources = "[overload.sources]\nfair = true\ntable_max = 99\nban_above_cps = 500\n\
                       ban_after_s = 3\nban_s = 9\nnever_ban = [\"10.0.0.0/8\"]\nbans_max = 5\n\
                       [[overload.weight]]\nfrom = \"10.1.0.0/16\"\nweight = 1000\n\
                       [[overload.limit]]\nfrom = \"192.0.2.1\"\nrate_cps = 0.5\nthen = \"ban\"\n\
                       ban_s = 7\n[[overload.limit]]\nfrom = \"2001:db8::/32\"\nrate_cps = 20\n\
                       burst = 3\nper = \"limit\"\nthen = \"drop\"\n[overload.priority]\n\
                       from = [\"192.0.2.9/32\"]\nemergency = false\ncap_cps = 2.5\n\
                       resource_priority = [\"esnet.1\", \"DSN.flash\"]\n[emulate]\n";
        let kernel = "[overload]\ndisposal = \"kernel\"\nrejecting_max = 0.25\nstateful_max = 0.6\n\
                      [emulate]\nserve_us = 9\nserve_stateless_us = { default = 3, bye = 0.5 }\n";
        let feedback = "[overload.feedback]\nalgorithms = [\"rate\", \"loss\"]\n\
                        peers = [\"192.0.2.20\", \"10.0.0.0/8\"]\nfairness = \"user\"\nshare_max = 0.5\n\
                        share_by = \"host\"\n\
                        [emulate]\n";
        let silent = "[overload.feedback]\nalgorithms = []\nfairness = \"weighted\"\n[emulate]\n";
        let texts =
            [given, single, multi, scaled, sources, kernel, feedback, silent, "[emulate]\n"];
        for text in texts {
            let config = parse(text);
            let emulate = config.emulate.expect("it was given");
            let again = parse(&(overload_toml(&config.overload) + &emulate_toml(&emulate)));
            assert_eq!(again.overload, config.overload);
            let again = again.emulate.expect("it was written");
            // The array has room for more classes than exist.
            for class in Class::ALL.map(|class| class as usize) {
                assert_eq!(again.offer[class], emulate.offer[class]);
                assert_eq!(again.serve[class], emulate.serve[class]);
                assert_eq!(again.reject[class], emulate.reject[class]);
                let stateless = |emulate: &Emulate| emulate.serve_stateless.map(|us| us[class]);
                assert_eq!(stateless(&again), stateless(&emulate));
            }
            let rest = |emulate: Emulate| {
                let none = Emulate::default();
                let (offer, serve, reject) = (none.offer, none.serve, none.reject);
                Emulate { offer, serve, serve_stateless: None, reject, ..emulate }
            };
            assert_eq!(rest(again), rest(emulate.clone()));
            if text == "[emulate]\n" {
                assert_eq!(emulate, Emulate::default());
            }
        }
    }
}
