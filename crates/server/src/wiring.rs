//! Opens the sockets of a configuration.

use tidegate_io as io;
use tidegate_proxy as proxy;
use tidegate_proxy::Disposal;

use crate::StartError;
use crate::config::{Config, Listen, Sharing};

/// Opens the sockets of every listener.
pub(crate) fn open(config: &Config) -> Result<Vec<io::Group>, StartError> {
    let open = |listen: &Listen| {
        let group = io::Listen {
            shards: config.server.shards,
            receive_buffer: listen.receive_buffer,
            // A single queue has a single order: that of arrival.
            split: config.overload.queueing == proxy::Queueing::Class,
            shared: listen.shared == Sharing::Processes,
            gate: listen.shared != Sharing::Processes
                && (matches!(config.overload.disposal, Disposal::Auto | Disposal::Kernel)
                    || config.overload.sources.may_ban()),
            ..io::Listen::new(listen.address)
        };
        io::open(&group).map_err(|error| {
            let remedy = "stop the program that uses this address, or change `[[listen]] address`";
            StartError::new(format!("listener {}", listen.address), error.to_string(), remedy)
        })
    };
    config.listen.iter().map(open).collect()
}
