//! `[[listen]]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use tidegate_proxy::LISTENERS_MAX;
use tidegate_world::Transport;

use crate::config::address::{self, HostPort};
use crate::config::keys::{Only, table};
use crate::config::knob::Reload;
use crate::config::shape::{Choice, List, OneOrMore, Text, Whole};
use crate::config::tables::tls::PEM_FILE;
use crate::config::word;

/// The instances that listen at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only this instance.
    No,
    /// Instances on other machines: the network chooses which of them a datagram reaches.
    Hosts,
    /// Processes of the same user on this machine, among which the kernel chooses.
    Processes,
}

/// The clients that need a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// All clients.
    Required,
    /// None: clients without a certificate are served too.
    Optional,
}

const NETWORKS: List<Text<IpNet>> = List {
    of: Text::new("an address or network, such as `\"192.0.2.0/24\"`", address::network),
    count_max: 1024,
};

/// The transports by which peers reach Tidegate.
const TRANSPORTS: &[(&str, Transport)] = &[
    ("udp", Transport::Udp),
    ("tcp", Transport::Tcp),
    ("tls", Transport::Tls),
    ("ws", Transport::Ws),
    ("wss", Transport::Wss),
];

static FOR_DATAGRAMS: Only<ListenDraft> = Only {
    by: "transport",
    when: |listen| listen.transport.as_ref().is_none_or(|by| *by.get_ref() == Transport::Udp),
    why: "a listener for connections does not use this key",
    instead: "write `transport = \"udp\"`",
};

static FOR_TLS: Only<ListenDraft> = Only {
    by: "transport",
    when: |listen| listen.transport.as_ref().is_some_and(|by| by.get_ref().is_secure()),
    why: "a listener without TLS does not use this key",
    instead: "write `transport = \"tls\"` or `\"wss\"`",
};

static FOR_WEBSOCKETS: Only<ListenDraft> = Only {
    by: "transport",
    when: |listen| listen.transport.as_ref().is_some_and(|by| by.get_ref().is_websocket()),
    why: "a listener without WebSockets does not use this key",
    instead: "write `transport = \"wss\"` or `\"ws\"`",
};

/// The paths of the files with a listener's certificates, or with their keys.
const PEM_FILES: OneOrMore<Text<PathBuf>> = OneOrMore(List { of: PEM_FILE, count_max: 64 });

table! {
    /// An address at which Tidegate receives SIP and from which it sends SIP.
    pub static LISTEN: "[[listen]]" 1..=LISTENERS_MAX, Restart, [] => Listen, ListenDraft;

    /// The name by which `listener` of a `[[pool]]` refers to this listener.
    name: String | None = Text::new(
        "1 to 64 letters, digits and `_-.:`, such as `\"inside\"`",
        word::name,
    ), Means("none");
    /// The transport protocol. RFC 3261 §18.2.1 requires a listener for `tcp` at each address and
    /// port that has one for `udp`. `tls` is usually at port 5061. `wss` and `ws` are WebSockets
    /// with and without TLS, for browsers (RFC 7118).
    transport: Transport = Choice { words: TRANSPORTS, reserved: &[] }, Required;
    /// The address at which Tidegate listens. `0.0.0.0` or `[::]` means every address of the
    /// machine and needs `advertise`. Port 0 means any free port.
    address: SocketAddr =
        Text::new("an IP address and port, such as `\"192.0.2.1:5060\"`", address::listening),
        Required;
    /// The address by which peers reach this listener. Tidegate writes it into Via and
    /// Record-Route. Behind NAT this is the outer address. The NAT must also send the packets of
    /// this listener from exactly this address and port, because peers send their responses to the
    /// source port that they see (`rport`, RFC 3581).
    advertise: HostPort | None = Text::new(
        "a host and port, such as `\"sip.example.com:5060\"`",
        address::advertised,
    ), Means("`address`. The key is required if `address` is a wildcard");
    /// Further hosts by which peers reach this listener, in a Route or in the Request-URI. A phone
    /// writes its outbound proxy into Route. Tidegate accepts such a Route if it names `address`,
    /// `advertise` or one of these hosts, and rejects any other Route of a phone with 403. List
    /// every DNS name that leads to this listener, and every domain whose SRV records lead to it.
    /// Behind NAT, also list the outer address if `advertise` is a name. If the Route has a port,
    /// it must be that of `address` or `advertise`. A name in this list gives nobody the permission
    /// to relay requests.
    names: Vec<String> = List {
        of: Text::new(
            "a host name or an IP address, without a port, such as `\"sip.example.com\"`",
            address::own_host,
        ),
        count_max: 64,
    }, Default("[]");
    /// The other instances of Tidegate that listen at this address. `hosts`: instances on other
    /// machines, among which the network chooses (anycast, ECMP). `processes`: other Tidegate
    /// processes of the same user on this machine. All of these processes must have the same value.
    /// In both cases there must also be a listener that is not shared, with the transport of the
    /// pools. Tidegate sends requests to back ends from the first listener that is not shared, so
    /// that a response reaches the instance that sent the request. Every instance with the same
    /// keys can serve the requests of a call. With `processes` the kernel neither separates new
    /// work from other messages nor drops messages for Tidegate.
    shared: Sharing = Choice {
        words: &[("no", Sharing::No), ("hosts", Sharing::Hosts), ("processes", Sharing::Processes)],
        reserved: &[],
    }, Default("\"no\"");
    /// PEM files with the certificates of this listener. Each file contains one certificate of the
    /// listener, followed by the certificates of its authorities, up to the root. If there are
    /// several files, a client gets the first certificate for the host name that the client asks
    /// for (SNI). If no certificate has this name, the client gets the first one. A reload reads
    /// the files again. Existing connections stay open.
    certificates("certificate"): Vec<PathBuf> | None = PEM_FILES, Means("none. The key is required with `tls` and `wss`"),
        only(&FOR_TLS), reload(Reload::Live);
    /// PEM files with the private keys, in the same order as the certificates.
    private_keys("private_key"): Vec<PathBuf> | None = PEM_FILES, Means("none. The key is required with `tls` and `wss`"),
        only(&FOR_TLS), reload(Reload::Live);
    /// A PEM file with the CA certificates that verify the certificates of clients. With this key,
    /// Tidegate asks clients for a certificate (mutual TLS). `client_certificate` decides whether
    /// they must present one.
    client_ca: PathBuf | None = PEM_FILE, Means("clients are not asked for certificates"),
        only(&FOR_TLS), reload(Reload::Live);
    /// `required`: every client must present a certificate that an authority in `client_ca` has
    /// signed. `optional`: Tidegate also serves clients that present no certificate. It still
    /// rejects clients that present an invalid certificate.
    client_certificate: ClientCertificate = Choice {
        words: &[
            ("required", ClientCertificate::Required),
            ("optional", ClientCertificate::Optional),
        ],
        reserved: &[],
    }, Default("\"required\""), only(&FOR_TLS), reload(Reload::Live);
    /// The web sites whose pages may open a WebSocket, as browsers name them in `Origin`: scheme
    /// and host, and the port unless it is the default one. This protects the users of browsers
    /// against pages of other sites. Tidegate also serves clients that send no `Origin`, because
    /// they are not browsers.
    origins: Vec<String> | None = OneOrMore(List {
        of: Text::new("an origin, such as `\"https://phone.example.com\"`", word::origin),
        count_max: 64,
    }), Means("pages of all sites"), only(&FOR_WEBSOCKETS);
    /// Peers whose requests may go to the target that the request itself names. Their requests
    /// match routes with `from = "trusted"`. Back ends have both rights without an entry.
    /// `docs/guide/trust.md` lists the other effects.
    trust: Vec<IpNet> = NETWORKS, Default("[]");
    /// Peers that may assert the identity of the caller (RFC 3325), besides back ends and the peers
    /// in `trust`. Tidegate removes `P-Asserted-Identity` from messages of any other peer. From
    /// messages to any other peer, Tidegate removes `P-Preferred-Identity`. If `Privacy: id`
    /// protects the identity, Tidegate also removes `P-Asserted-Identity` from these messages.
    trust_identity: Vec<IpNet> = NETWORKS, Default("[]");
    /// Bytes of the kernel's receive buffer for each socket of this listener. The kernel may grant
    /// fewer bytes (`net.core.rmem_max`). Tidegate then logs a warning when it starts, and
    /// `/status` shows the granted size. The kernel chooses the buffers of connections (TCP, TLS
    /// and WebSocket) itself.
    receive_buffer: usize = Whole(4096..=1 << 30), Default("4_194_304"), only(&FOR_DATAGRAMS);
}
