//! Writes the summary of a configuration that `tidegate check` prints.

use std::fmt;

use tidegate_balance::{Learning, RateLaw, RateLearning, WindowLaw, WindowLearning};
use tidegate_proxy::{Probe, Rule, RuleTarget, Senders};
use tidegate_world::Transport;

use super::warnings::whole_families;
use super::written::{self, WrittenKey};
use super::{Config, Listen, Pool, Sharing};

impl fmt::Display for Config {
    /// Writes lines about the listeners, pools, routes, users, overload control, the admin
    /// interface and the server. Further lines, each about one table that cannot be repeated,
    /// contain the keys that differ from their defaults and are not in the lines above. The last
    /// line has no newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for listen in &self.listen {
            writeln!(f, "  listen   {}", listener(listen))?;
        }
        for pool in &self.pool {
            let Pool { name, policy, mode, backends, health, learning, backup, .. } = pool;
            let mode = mode.name();
            let policy = policy.name();
            let count = counted(backends.len(), "back end");
            write!(f, "  pool     {name}: {policy}, {mode}, {count}")?;
            match self.transport(pool) {
                Transport::Udp => {}
                other => write!(f, " over {}", other.name().to_ascii_lowercase())?,
            }
            if self.transport(pool).is_secure() && !pool.tls.verify {
                write!(f, ", certificates not verified")?;
            }
            if let Some(backup) = backup {
                write!(f, ", backup {backup}")?;
            }
            writeln!(f)?;
            if let Some(probe) = &health.probe {
                writeln!(f, "             {}", probed(probe))?;
            }
            for learned in learned(learning) {
                writeln!(f, "             {learned}")?;
            }
            for backend in backends {
                write!(f, "             {}", backend.endpoint)?;
                if backend.name != backend.endpoint.to_string() {
                    write!(f, " ({})", backend.name)?;
                }
                write!(f, ", weight {}", backend.weight)?;
                if let Some(calls_max) = backend.calls_max {
                    write!(f, ", at most {}", counted(calls_max as usize, "call"))?;
                }
                if let Some(cps_max) = backend.cps_max {
                    write!(f, ", at most {cps_max} requests/s")?;
                }
                writeln!(f)?;
            }
        }
        for route in &self.route {
            writeln!(f, "  route    {}", self.route_line(route))?;
        }
        if !self.user.is_empty() {
            writeln!(f, "  users    {}", counted(self.user.len(), "user"))?;
        }
        let law = self.overload.gate.law.entry().name;
        let slow = if self.emulate.is_some() { ", on an emulated processor" } else { "" };
        writeln!(f, "  overload {law}{slow}")?;
        match self.admin.address {
            Some(address) if address.ip().is_loopback() => {
                writeln!(f, "  admin    http://{address}")?;
            }
            Some(address) => {
                writeln!(
                    f,
                    "  admin    http://{address}, open without a password to everyone who can \
                     reach it"
                )?;
            }
            None => writeln!(f, "  admin    off")?,
        }
        write!(f, "  server   {}", counted(usize::from(self.server.shards), "shard"))?;
        for table in written::config(self).iter().filter(|written| !written.table.is_repeated()) {
            let header = table.table.header;
            let is_set =
                |key: &&WrittenKey| !key.is_default && !SHOWN.contains(&(header, key.name));
            let set = table.keys.iter().filter(is_set);
            let set: Vec<_> = set.map(ToString::to_string).collect();
            if !set.is_empty() {
                write!(f, "\n  set      {header} {}", set.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Keys that the summary does not repeat, because other lines show their values.
const SHOWN: [(&str, &str); 3] =
    [("[server]", "shards"), ("[admin]", "address"), ("[overload]", "law")];

impl Config {
    fn route_line(&self, route: &Rule) -> String {
        let mut line = match route.from {
            Senders::Any => "from all senders except back ends".to_owned(),
            Senders::Trusted => "from trusted peers".to_owned(),
            Senders::Pool => "from back ends".to_owned(),
            Senders::Net(net) => format!("from {net}"),
        };
        if !route.methods.is_empty() {
            line += &format!(", {}", listed(&route.methods));
        }
        if !route.domains.is_empty() {
            line += &format!(", for {}", listed(&route.domains));
        }
        match route.to {
            RuleTarget::Pool(index) => line + " to " + &self.pool[index].name,
            RuleTarget::RequestUri => line + " to its Request-URI",
            RuleTarget::Users => line + " to the user in its Request-URI",
        }
    }
}

fn listener(listen: &Listen) -> String {
    let transport = listen.transport.name().to_ascii_lowercase();
    let mut line = format!("{transport} {}", listen.address);
    if let Some(advertised) = &listen.advertise {
        line += &format!(", advertised as {advertised}");
    }
    if !listen.names.is_empty() {
        line += &format!(", {}", counted(listen.names.len(), "further name"));
    }
    match listen.shared {
        Sharing::No => {}
        Sharing::Hosts => line += ", shared with other hosts",
        Sharing::Processes => line += ", shared with other processes",
    }
    if !listen.trust.is_empty() {
        line += &format!(", trusts {}", counted(listen.trust.len(), "network"));
        let all = whole_families(&listen.trust).map(|family| format!("all {family} addresses"));
        let all: Vec<_> = all.collect();
        if !all.is_empty() {
            line += &format!(" ({})", all.join(", "));
        }
    }
    line
}

fn probed(Probe { interval, timeout, fall, rise, .. }: &Probe) -> String {
    format!(
        "probed every {interval:?} with a timeout of {timeout:?}; down after {fall} failures, up \
         after {rise} responses"
    )
}

fn learned(Learning { rate, window }: &Learning) -> impl Iterator<Item = String> {
    let rate = rate.as_ref().map(|RateLearning { law, interval, rate_min_cps, .. }| {
        let by = match law {
            RateLaw::Aimd => "",
            RateLaw::Sre => " by `sre`",
        };
        format!(
            "rate limits learned from rejections{by} every {interval:?}, at least \
             {rate_min_cps} requests/s"
        )
    });
    let window = window.as_ref().map(|WindowLearning { law, delay, .. }| match law {
        WindowLaw::Delay => {
            format!("window limits learned from delay, for a wait of {delay:?} under overload")
        }
        law => format!("window limits learned from delay by the law `{}`", law.name()),
    });
    rate.into_iter().chain(window)
}

/// Lists the first few of `words`, and the number of the others.
fn listed(words: &[String]) -> String {
    const SHOWN_MAX: usize = 4;
    match words.len().checked_sub(SHOWN_MAX) {
        None | Some(0) => words.join(", "),
        Some(more) => format!("{} and {more} more", words[..SHOWN_MAX].join(", ")),
    }
}

fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
