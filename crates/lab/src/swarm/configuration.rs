//! Writes the configuration files of a world's proxies, in the format of `tidegate run`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::path::Path;

use tidegate_server::config::Config;
use tidegate_world::Transport;

use super::world::{Place, Setting, World, address, host};

/// The limits in `[server]` that a world may set lower than a configuration file may, to test full
/// tables. Each has its minimum in a configuration file.
const LIMITS: [(&str, u64); 3] =
    [("calls_max", 1000), ("transactions_max", 1000), ("queue_max", 256)];

/// Returns the text of the configuration file of a proxy.
pub fn text(world: &World, proxy: usize) -> String {
    text_without(world, proxy, &[])
}

/// Returns the text of the configuration file of a proxy, without the back ends whose indices are
/// in `absent`.
pub(super) fn text_without(world: &World, proxy: usize, absent: &[usize]) -> String {
    let this = &world.proxies[proxy];
    let mut text = String::from("[server]\n");
    for (key, value) in &this.server {
        let least = LIMITS.iter().find(|(limit, _)| limit == key).map_or(0, |(_, least)| *least);
        let _ = writeln!(text, "{key} = {}", value.max(&least));
    }
    let [ahead, behind] = world.transports(proxy);
    let word = |transport: Transport| transport.name().to_ascii_lowercase();
    let _ = write!(
        text,
        "\n[admin]\naddress = \"off\"\n\n[[listen]]\ntransport = \"{}\"\naddress = \"{}\"\n\n",
        word(ahead),
        address(Place::Proxy(proxy))
    );
    if ahead != behind {
        let mut other = address(Place::Proxy(proxy));
        other.set_port(other.port() + 1);
        let _ = write!(
            text,
            "[[listen]]\nname = \"behind\"\ntransport = \"{}\"\naddress = \"{other}\"\n\n",
            word(behind)
        );
    }
    text.push_str("[[pool]]\nname = \"behind\"\n");
    if ahead != behind {
        text.push_str("listener = \"behind\"\n");
    }
    put(&mut text, &this.pool);
    let behind = world.behind(proxy);
    // A pool that forks has no order of back ends.
    let forks = this.pool.get("policy") == Some(&Setting::Word("fork".into()));
    let standby = if forks { 0 } else { this.standby };
    let first = behind.len().saturating_sub(standby);
    for (index, &place) in behind.iter().enumerate().filter(|(index, _)| !absent.contains(index)) {
        let _ = writeln!(text, "[[pool.backend]]\nuri = \"sip:{}\"", name_of(world, place));
        let _ = writeln!(text, "priority = {}", u8::from(index >= first));
        put(&mut text, &this.limits);
    }
    put_table(&mut text, "[pool.limit]", &this.learning);
    put_table(&mut text, "[pool.health]", &this.health);
    text.push_str("\n[overload]\n");
    put(&mut text, &this.overload);
    text.push_str("\n[overload.params]\n");
    for (key, value) in &this.params {
        let _ = writeln!(text, "{key} = {value:?}");
    }
    put_table(&mut text, "[overload.sources]", &this.sources);
    put_table(&mut text, "[emulate]", &this.emulate);
    text
}

/// Appends a table, unless it has no keys.
fn put_table<V: Display>(text: &mut String, header: &str, keys: &BTreeMap<String, V>) {
    if !keys.is_empty() {
        let _ = writeln!(text, "\n{header}");
        put(text, keys);
    }
}

/// Appends a line for each key with its value.
fn put<V: Display>(text: &mut String, keys: &BTreeMap<String, V>) {
    for (key, value) in keys {
        let _ = writeln!(text, "{key} = {value}");
    }
}

/// Returns the address of a node for the configuration of a proxy. The address has a host name
/// instead of an IP address if the world uses names.
pub(super) fn name_of(world: &World, place: Place) -> String {
    let at = address(place);
    match world.names {
        Some(_) => format!("{}:{}", host(place), at.port()),
        None => at.to_string(),
    }
}

/// Returns the configuration of a proxy, with the limits of the world. These may be below the
/// minimum that a configuration file allows.
///
/// # Errors
/// Returns the errors in the configuration.
pub fn config(world: &World, proxy: usize) -> Result<Config, String> {
    let text = text(world, proxy);
    let mut config = Config::parse(Path::new("proxy.toml"), text.as_bytes())
        .map_err(|diagnostics| diagnostics.render(false))?;
    let limit = |key: &str| world.proxies[proxy].server.get(key).map(|&value| value as usize);
    let server = &mut config.server;
    server.calls_max = limit("calls_max").unwrap_or(server.calls_max);
    server.transactions_max = limit("transactions_max").unwrap_or(server.transactions_max);
    server.queue_max = limit("queue_max").unwrap_or(server.queue_max);
    for (listen, transport) in config.listen.iter_mut().zip(world.transports(proxy)) {
        (listen.transport, listen.address) = (transport, address(Place::Proxy(proxy)));
    }
    Ok(config)
}
