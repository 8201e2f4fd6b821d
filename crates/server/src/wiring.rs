//! Opens the sockets for the listeners of a configuration.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;

use rustix::io::Errno;
use tidegate_io as io;
use tidegate_proxy as proxy;
use tidegate_proxy::Disposal;
use tidegate_world::Transport;

use crate::StartError;
use crate::config::{Config, Connections, Listen, Sharing};
use crate::tls::Tls;

/// The sockets of a listener.
pub(crate) enum Group {
    /// The sockets of a listener for datagrams.
    Datagrams(io::Group),
    /// The sockets of a listener for connections.
    Streams(io::StreamGroup),
}

impl Group {
    /// Returns the address of the listener. If port 0 was configured, the address has the port that
    /// the kernel chose.
    pub(crate) fn local(&self) -> SocketAddr {
        match self {
            Self::Datagrams(group) => group.local(),
            Self::Streams(group) => group.local(),
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Datagrams(_) => Transport::Udp,
            Self::Streams(group) => group.transport(),
        }
    }

    /// Returns the size of the receive buffer of each socket, in bytes, or `None` for a listener
    /// for connections.
    pub(crate) fn receive_buffer(&self) -> Option<usize> {
        match self {
            Self::Datagrams(group) => Some(group.receive_buffer()),
            Self::Streams(_) => None,
        }
    }
}

/// Returns the sockets of one shard: first those for datagrams, then those for connections.
pub(crate) fn of_shard(
    groups: &[Group],
    shard: u16,
) -> (Vec<io::Listener>, Vec<io::StreamListener>) {
    let (mut datagrams, mut streams) = (Vec::new(), Vec::new());
    for group in groups {
        match group {
            Group::Datagrams(group) => datagrams.push(group.listener(shard)),
            Group::Streams(group) => streams.push(group.listener(shard)),
        }
    }
    (datagrams, streams)
}

/// Returns the limits that the driver of one shard applies to its connections.
pub(crate) fn stream_limits(config: &Config) -> io::StreamLimits {
    let Connections {
        accepts_per_turn, handshakes_per_turn, handshake, message, memory_max, ..
    } = config.connections;
    io::StreamLimits {
        accepts: accepts_per_turn,
        handshakes: handshakes_per_turn,
        handshake,
        message,
        held_max: memory_max / usize::from(config.server.shards),
        ..io::StreamLimits::default()
    }
}

/// Opens the sockets of every listener. The groups have the order of the configuration.
pub(crate) fn open(config: &Config, tls: &Tls) -> Result<Vec<Group>, StartError> {
    let open = |index: usize, listen: &Listen| {
        let opened = match listen.transport {
            Transport::Udp => io::open(&datagrams(config, listen)).map(Group::Datagrams),
            _ => {
                let listen = streams(config, listen, tls.server(index));
                io::StreamGroup::open(&listen).map(Group::Streams)
            }
        };
        opened.map_err(|error| {
            let place = format!("listener {}", listen.address);
            StartError::new(place, error.to_string(), remedy(&error))
        })
    };
    // As soon as a socket is bound to an address that processes share, the kernel sends a part of
    // the traffic to this socket. So these addresses are opened last.
    let mut order: Vec<_> = config.listen.iter().enumerate().collect();
    order.sort_by_key(|(_, listen)| listen.shared == Sharing::Processes);
    let opened = order
        .into_iter()
        .map(|(index, listen)| open(index, listen).map(|group| (index, group)))
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    Ok(opened.into_values().collect())
}

/// Returns the instruction to the operator for an address that cannot be opened.
fn remedy(error: &io::OpenError) -> &'static str {
    match Errno::from_io_error(&error.error) {
        Some(Errno::MFILE) => {
            return "raise the limit of open files of this process (`ulimit -n`, `LimitNOFILE` of \
                    systemd)";
        }
        Some(Errno::NFILE) => {
            return "raise the limit of open files of the machine (`sysctl fs.file-max`)";
        }
        _ => {}
    }
    match (error.call, error.error.kind()) {
        (_, ErrorKind::AddrInUse) => {
            "stop the program that uses this address, or change `[[listen]] address`"
        }
        (_, ErrorKind::AddrNotAvailable) => {
            "add this address to the machine, or change `[[listen]] address`"
        }
        ("bind", ErrorKind::PermissionDenied) => {
            "give this process the capability CAP_NET_BIND_SERVICE, or change `[[listen]] address`"
        }
        _ => {
            "allow the call that failed, in the kernel or in the service manager, or change \
             `address` or `transport` of this `[[listen]]`"
        }
    }
}

/// Returns a warning for each listener whose receive buffer is smaller than the configured size.
/// `groups` have the order of the configuration.
pub(crate) fn buffer_warnings(config: &Config, groups: &[Group]) -> Vec<String> {
    let warning = |(listen, group): (&Listen, &Group)| {
        buffer_warning(group.local(), group.receive_buffer()?, listen.receive_buffer)
    };
    config.listen.iter().zip(groups).filter_map(warning).collect()
}

fn buffer_warning(local: SocketAddr, granted: usize, configured: usize) -> Option<String> {
    // `net.core.rmem_max` limits the requested size. The kernel grants twice that size.
    let half = configured / 2;
    (granted < 2 * half).then(|| {
        format!(
            "listener udp {local}: the receive buffer has {granted} bytes instead of {configured}; \
             raise net.core.rmem_max to {half}, or lower `receive_buffer` of this `[[listen]]`"
        )
    })
}

fn datagrams(config: &Config, listen: &Listen) -> io::Listen {
    io::Listen {
        shards: config.server.shards,
        receive_buffer: listen.receive_buffer,
        // With a single queue, all messages are served in the order of their arrival.
        split: config.overload.queueing == proxy::Queueing::Class,
        shared: listen.shared == Sharing::Processes,
        gate: listen.shared != Sharing::Processes
            && (matches!(config.overload.disposal, Disposal::Auto | Disposal::Kernel)
                || config.overload.sources.may_ban()),
        ..io::Listen::new(listen.address)
    }
}

fn streams(config: &Config, listen: &Listen, tls: Option<io::TlsServer>) -> io::StreamListen {
    io::StreamListen {
        transport: listen.transport,
        address: listen.address,
        shards: config.server.shards,
        shared: listen.shared == Sharing::Processes,
        tls,
        origins: listen.origins.clone().map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_the_limit_of_files_only_if_it_is_reached() {
        let remedy = |call, errno: Errno| {
            let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
            remedy(&io::OpenError { address: "[2001:db8::1]:5060".parse().unwrap(), call, error })
        };
        assert!(remedy("socket", Errno::MFILE).contains("`ulimit -n`"));
        assert!(remedy("socket", Errno::NFILE).contains("`sysctl fs.file-max`"));
        assert!(remedy("bind", Errno::ADDRINUSE).contains("stop the program"));
        assert!(remedy("bind", Errno::ADDRNOTAVAIL).contains("add this address"));
        assert!(remedy("bind", Errno::ACCESS).contains("CAP_NET_BIND_SERVICE"));
        for (call, errno) in [
            ("socket", Errno::AFNOSUPPORT),
            ("SO_ATTACH_REUSEPORT_CBPF", Errno::PERM),
            ("SO_ATTACH_REUSEPORT_CBPF", Errno::NOMEM),
        ] {
            let remedy = remedy(call, errno);
            assert!(remedy.contains("the call that failed"), "{call}, {errno:?}: {remedy}");
        }
    }

    #[test]
    fn a_receive_buffer_that_the_kernel_made_smaller_is_reported() {
        let local = "192.0.2.1:5060".parse().unwrap();
        let warning = buffer_warning(local, 425_984, 4_194_304).unwrap();
        for part in [
            "listener udp 192.0.2.1:5060: the receive buffer has 425984 bytes instead of 4194304",
            "raise net.core.rmem_max to 2097152",
        ] {
            assert!(warning.contains(part), "{part} is not in {warning}");
        }
        // The kernel grants an even number of bytes, and may grant more than the configured size.
        for configured in [4_096, 425_984, 425_985] {
            assert_eq!(buffer_warning(local, 425_984, configured), None, "{configured}");
        }
    }
}
