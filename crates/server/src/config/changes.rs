//! What has changed from one configuration to another, and what of that a running process cannot
//! take on.

use tidegate_proxy::Overload;

use super::resolved::overload_toml;
use super::{Admin, Config, Server};

/// The keys and tables that are another in `new`, and that hold until a restart: all but pools,
/// routes, users, and the laws of overload control. The first host name of a back end is one too.
pub fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    // Whoever adds a table decides here whether it can be taken on.
    let Config {
        path: _,
        server,
        admin,
        listen,
        pool: _,
        route: _,
        user: _,
        overload,
        emulate,
        name_servers,
    } = new;
    let mut keys = changed_server(&old.server, server);
    keys.extend(changed_admin(&old.admin, admin));
    if old.listen != *listen {
        keys.push("[[listen]]".to_owned());
    }
    if old.name_servers != *name_servers {
        keys.push("[resolver]".to_owned());
    }
    keys.extend(changed_overload(&old.overload, overload));
    if old.emulate != *emulate {
        keys.push("[emulate]".to_owned());
    }
    keys
}

fn changed_server(old: &Server, new: &Server) -> Vec<String> {
    let keys = [
        ("shards", old.shards != new.shards),
        ("state_dir", old.state_dir != new.state_dir),
        ("drain_seconds", old.drain != new.drain),
        ("calls_max", old.calls_max != new.calls_max),
        ("transactions_max", old.transactions_max != new.transactions_max),
        ("message_memory_max_mb", old.message_memory_max != new.message_memory_max),
        ("amplification_max", old.amplification_max != new.amplification_max),
        ("call_idle_seconds", old.call_idle != new.call_idle),
        ("removed_backend_seconds", old.removed_backend != new.removed_backend),
        ("queue_max", old.queue_max != new.queue_max),
        ("backend_pause_seconds", old.backend_pause != new.backend_pause),
        ("coalesce_us", old.coalesce != new.coalesce),
        ("timer_slack_us", old.timer_slack != new.timer_slack),
        ("gso", old.gso != new.gso),
        ("gso_padding", old.gso_padding != new.gso_padding),
        ("name", old.name != new.name),
        ("key_rotate_h", old.rotation.every != new.rotation.every),
        ("key_settle_s", old.rotation.settle != new.rotation.settle),
    ];
    changed("server", old == new, &keys)
}

fn changed_admin(old: &Admin, new: &Admin) -> Vec<String> {
    let keys = [
        ("address", old.address != new.address),
        ("hosts", old.hosts != new.hosts),
        ("refusals_per_second", old.refusals_per_second != new.refusals_per_second),
        ("refusals_kept", old.refusals_kept != new.refusals_kept),
    ];
    changed("admin", old == new, &keys)
}

fn changed_overload(old: &Overload, new: &Overload) -> Vec<String> {
    let mut alike = new.clone();
    alike.gate.law = old.gate.law;
    alike.gate.shadow = old.gate.shadow;
    let (old_text, new_text) = (overload_toml(old), overload_toml(&alike));
    let key = |line: &str| line.split(" = ").next().unwrap_or(line).to_owned();
    let lines = new_text.lines().filter(|line| !old_text.lines().any(|old| old == *line));
    let mut keys: Vec<_> = lines.map(|line| (key(line), true)).collect();
    keys.dedup();
    let keys: Vec<_> = keys.iter().map(|(key, changed)| (key.as_str(), *changed)).collect();
    changed("overload", *old == alike, &keys)
}

/// The keys of a table that have changed, if it is not the same; the table if it is none of them.
fn changed(table: &str, is_same: bool, keys: &[(&str, bool)]) -> Vec<String> {
    if is_same {
        return Vec::new();
    }
    let keys = keys.iter().filter(|(_, changed)| *changed);
    let mut keys: Vec<_> = keys.map(|(key, _)| format!("[{table}] {key}")).collect();
    if keys.is_empty() {
        keys.push(format!("[{table}]"));
    }
    keys
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const PLACES: &str = "[[pool]]\nname = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1\"\n";
    const LISTEN: &str = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n";

    fn config(text: &str) -> Config {
        let listen = if text.contains("[[listen]]") { "" } else { LISTEN };
        let text = format!("{PLACES}{listen}{text}");
        Config::parse(Path::new("f"), text.as_bytes()).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    #[test]
    fn what_needs_a_restart_is_named() {
        for (text, keys) in [
            ("[server]\nshards = 1\n", &[][..]),
            ("[server]\nshards = 2\nqueue_max = 999\n", &["[server] shards", "[server] queue_max"]),
            (
                "[server]\nkey_rotate_h = 5\nkey_settle_s = 99\n",
                &["[server] key_rotate_h", "[server] key_settle_s"],
            ),
            ("[server]\ngso = false\nname = \"\"\n", &["[server] gso", "[server] name"]),
            ("[admin]\nhosts = [\"x\"]\n", &["[admin] hosts"]),
            ("[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:1\"\n", &["[[listen]]"]),
            ("[emulate]\n", &["[emulate]"]),
            ("[overload]\nlaw = \"pi\"\n[overload.shadow]\nlaw = \"occ\"\n", &[]),
            ("[overload]\nlaw = \"pi\"\ndisposal = \"drop\"\n", &["[overload] disposal"]),
            ("[overload]\n[overload.sources]\nfair = true\n", &["[overload] fair"]),
            (
                "[[pool]]\nname = \"b\"\n[[pool.backend]]\nuri = \"sip:127.0.0.2\"\n\
              [[route]]\nto = \"b\"\n",
                &[],
            ),
        ] {
            assert_eq!(needs_restart(&config(""), &config(text)), keys, "{text}");
        }
    }
}
