//! The configuration of a world's proxies, as `tidegate run` would read it.

use std::fmt::Write as _;
use std::path::Path;

use tidegate_server::config::Config;

use super::world::{Place, World, address, host};

/// Limits of `[server]` that a configuration allows to be as low as this; a world may have lower
/// ones, for what happens at a full table.
const LIMITS: [(&str, u64); 3] =
    [("calls_max", 1000), ("transactions_max", 1000), ("queue_max", 256)];

/// The configuration file of a proxy.
pub fn text(world: &World, proxy: usize) -> String {
    let this = &world.proxies[proxy];
    let mut text = String::from("[server]\n");
    for (key, value) in &this.server {
        let least = LIMITS.iter().find(|(limit, _)| limit == key).map_or(0, |(_, least)| *least);
        let _ = writeln!(text, "{key} = {}", value.max(&least));
    }
    let _ = write!(
        text,
        "\n[admin]\naddress = \"off\"\n\n[[listen]]\ntransport = \"udp\"\naddress = \"{}\"\n\n\
         [[pool]]\nname = \"behind\"\n",
        address(Place::Proxy(proxy))
    );
    for (key, value) in &this.pool {
        let _ = writeln!(text, "{key} = {value}");
    }
    for place in world.behind(proxy) {
        let at = address(place);
        let location = match world.names {
            Some(_) => format!("{}:{}", host(place), at.port()),
            None => at.to_string(),
        };
        let _ = writeln!(text, "[[pool.backend]]\nuri = \"sip:{location}\"");
    }
    text.push_str("\n[overload]\n");
    for (key, value) in &this.overload {
        let _ = writeln!(text, "{key} = {value}");
    }
    text.push_str("\n[overload.params]\n");
    for (key, value) in &this.params {
        let _ = writeln!(text, "{key} = {value:?}");
    }
    if !this.emulate.is_empty() {
        text.push_str("\n[emulate]\n");
        for (key, value) in &this.emulate {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text
}

/// The configuration of a proxy, with limits as low as the world has them.
///
/// # Errors
/// With what is wrong with it.
pub fn config(world: &World, proxy: usize) -> Result<Config, String> {
    let text = text(world, proxy);
    let mut config = Config::parse(Path::new("proxy.toml"), text.as_bytes())
        .map_err(|diagnostics| diagnostics.render(false))?;
    let limit = |key: &str| world.proxies[proxy].server.get(key).map(|&value| value as usize);
    let server = &mut config.server;
    server.calls_max = limit("calls_max").unwrap_or(server.calls_max);
    server.transactions_max = limit("transactions_max").unwrap_or(server.transactions_max);
    server.queue_max = limit("queue_max").unwrap_or(server.queue_max);
    Ok(config)
}
