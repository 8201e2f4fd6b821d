//! Traffic over connections: transports, certificates and limits on the command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, DEFAULT_VERSIONS, RootCertStore, ServerConfig};
use tidegate_io::{StreamListen, TlsPeer, TlsPeers, TlsServer, WebSocketClient};
use tidegate_server::config::{AcceptAny, SYSTEM_AUTHORITIES};
use tidegate_transport::ConnectionLimits;
use tidegate_world::Transport;

use crate::stage::Stage;
use tidegate::trouble::Trouble;

/// Number of file descriptors that are reserved for everything except connections.
const OTHERS: usize = 64;

/// Maximum number of connections, if the operating system allows as many.
const CONNECTIONS_MAX: usize = 100_000;

/// Maximum number of messages that wait for one connection. There may be many, because the
/// generator offers further calls while the server reads nothing.
const WAITING_MAX: usize = 10_000;

/// Maximum number of bytes that wait for one connection.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// The options for TLS: the certificates that verify peers, and the certificate of this side.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsArgs {
    /// PEM file with the CA certificates that verify TLS peers [default: the CAs that this machine
    /// trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Accept every certificate of a TLS peer, even a self-signed one
    #[arg(long, conflicts_with = "ca")]
    tls_insecure: bool,

    /// PEM file with the certificate by which this side identifies itself over TLS [default: a
    /// self-signed one on connections that peers open, none on connections that this side opens]
    #[arg(long, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,

    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    private_key: Option<PathBuf>,
}

/// A certificate with its chain, and its key.
struct Identity(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl TlsArgs {
    /// Opens the [`Stage`] of an agent that is reached at `address`: sockets for datagrams, or a
    /// listener for connections. `name` is the host that certificates of peers have to name
    /// [default: the address of the peer].
    pub fn open(
        &self,
        transport: Transport,
        address: SocketAddr,
        name: Option<&str>,
        slack: Duration,
    ) -> Result<Stage, Trouble> {
        if !transport.is_reliable() {
            return Stage::open(&[address], slack);
        }
        let tls = match transport.is_secure() {
            true => Some(TlsServer::new(self.server(address)?)),
            false => None,
        };
        let listen =
            StreamListen { transport, address, shards: 1, shared: false, tls, origins: None };
        Stage::listen(&listen, self.peers(transport, name)?, limits(), slack)
    }

    /// Returns the first given option that names a file, or `None` if none is given.
    pub fn file_option(&self) -> Option<&'static str> {
        let given = [
            ("--ca", &self.ca),
            ("--certificate", &self.certificate),
            ("--private-key", &self.private_key),
        ];
        given.into_iter().find_map(|(option, file)| file.is_some().then_some(option))
    }

    /// Returns these options for a load plan. The options `plan` come from another machine and name
    /// no files. They can add `--tls-insecure`, unless `--ca` is given here.
    pub fn for_plan(&self, plan: &Self) -> Self {
        let tls_insecure = self.tls_insecure || (plan.tls_insecure && self.ca.is_none());
        Self { tls_insecure, ..self.clone() }
    }

    /// Opens the [`Stage`] of an agent that opens WebSockets from `address` and accepts no
    /// connections.
    pub fn open_client(
        &self,
        client: WebSocketClient,
        transport: Transport,
        address: SocketAddr,
        name: Option<&str>,
        slack: Duration,
    ) -> Result<Stage, Trouble> {
        let tls_peers = self.peers(transport, name)?;
        Ok(Stage::client(client, transport, address, tls_peers, limits(), slack))
    }

    fn server(&self, address: SocketAddr) -> Result<Arc<ServerConfig>, Trouble> {
        let Identity(chain, key) = match self.identity()? {
            Some(identity) => identity,
            None => self_signed(address)?,
        };
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(DEFAULT_VERSIONS)
            .expect("the provider has suites for both versions")
            .with_no_client_auth()
            .with_single_cert(chain, key);
        config.map(Arc::new).map_err(|error| self.unusable(&error))
    }

    /// Returns a function that gives the TLS settings for a connection to a peer. If `transport`
    /// has no TLS, the function gives `None` for every peer.
    fn peers(&self, transport: Transport, name: Option<&str>) -> Result<TlsPeers, Trouble> {
        if !transport.is_secure() {
            return Ok(Arc::new(|_| None));
        }
        let verifier: Arc<dyn ServerCertVerifier> = if self.tls_insecure {
            Arc::new(AcceptAny::new(provider()))
        } else {
            let path = self.ca.as_deref().unwrap_or(Path::new(SYSTEM_AUTHORITIES));
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
            verifier.map_err(|error| Trouble::usage(format!("{}: {error}", path.display())))?
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(DEFAULT_VERSIONS)
            .expect("the provider has suites for both versions")
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match self.identity()? {
            None => builder.with_no_client_auth(),
            Some(Identity(chain, key)) => {
                builder.with_client_auth_cert(chain, key).map_err(|error| self.unusable(&error))?
            }
        };
        let name = match name {
            None => None,
            Some(name) => Some(ServerName::try_from(name.to_owned()).map_err(Trouble::usage)?),
        };
        let config = Arc::new(config);
        Ok(Arc::new(move |remote| {
            let name = name.clone().unwrap_or_else(|| remote.ip().into());
            Some(TlsPeer { config: Arc::clone(&config), name })
        }))
    }

    fn identity(&self) -> Result<Option<Identity>, Trouble> {
        let (Some(certificate), Some(key)) = (&self.certificate, &self.private_key) else {
            return Ok(None);
        };
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| Trouble::usage(format!("{}: {error}", key.display())))?;
        Ok(Some(Identity(certificates(certificate)?, private)))
    }

    fn unusable(&self, error: &rustls::Error) -> Trouble {
        let path = self.certificate.as_deref().unwrap_or(Path::new("the self-signed certificate"));
        Trouble::usage(format!("{}: {error}", path.display()))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Trouble> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| Trouble::usage(format!("{}: {error}", path.display())))
}

fn authorities(path: &Path) -> Result<RootCertStore, Trouble> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(path)?);
    if added == 0 {
        return Err(Trouble::usage(format!(
            "the file {} contains no CA certificate",
            path.display()
        )));
    }
    Ok(roots)
}

/// Makes a certificate for an address. Only a peer that accepts every certificate accepts it.
fn self_signed(address: SocketAddr) -> Result<Identity, Trouble> {
    let made = rcgen::generate_simple_self_signed([address.ip().to_string()])
        .map_err(|error| Trouble::failure(format!("cannot make a certificate: {error}")))?;
    let key =
        PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(Trouble::failure)?;
    Ok(Identity(vec![made.cert.der().clone()], key))
}

/// Returns the limits of a generator's connections, which follow from the number of file
/// descriptors that this process may open.
fn limits() -> ConnectionLimits {
    let most = descriptors().saturating_sub(OTHERS).min(CONNECTIONS_MAX);
    ConnectionLimits {
        opened_max: most,
        accepted_max: most,
        per_remote_max: most,
        waiting_max: WAITING_MAX,
        waiting_bytes_max: WAITING_BYTES_MAX,
        ..ConnectionLimits::default()
    }
}

/// Raises the number of file descriptors that this process may open, as far as the operating system
/// allows. Returns the number.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    // If this fails, the process can open fewer connections.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize)
}

/// Parses the name of a transport that agents use.
pub fn parse_transport(text: &str) -> Result<Transport, String> {
    Transport::ALL
        .into_iter()
        .find(|transport| transport.name().eq_ignore_ascii_case(text))
        .ok_or_else(|| "not a transport: expected udp, tcp, tls, ws or wss".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "127.0.0.1:0";

    fn open(tls: &TlsArgs) -> Result<Stage, Trouble> {
        tls.open(Transport::Tls, HERE.parse().unwrap(), None, Duration::ZERO)
    }

    #[test]
    fn transports_are_read_by_their_names() {
        for (text, transport) in [
            ("udp", Transport::Udp),
            ("TCP", Transport::Tcp),
            ("tls", Transport::Tls),
            ("ws", Transport::Ws),
            ("Wss", Transport::Wss),
        ] {
            assert_eq!(parse_transport(text), Ok(transport));
        }
        for text in ["", "sctp", "websocket"] {
            assert!(parse_transport(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "").unwrap();
        let missing = folder.path().join("missing.pem");
        let said = |tls: &TlsArgs| open(tls).err().expect("it cannot be used").to_string();
        for path in [&empty, &missing] {
            let ca = TlsArgs { ca: Some(path.clone()), ..TlsArgs::default() };
            let identity = TlsArgs {
                tls_insecure: true,
                certificate: Some(path.clone()),
                private_key: Some(path.clone()),
                ..TlsArgs::default()
            };
            for tls in [ca, identity] {
                assert!(said(&tls).contains(&path.display().to_string()), "{}", said(&tls));
            }
        }
        let insecure = TlsArgs { tls_insecure: true, ..TlsArgs::default() };
        assert!(open(&insecure).is_ok(), "a certificate is made");
    }

    #[test]
    fn a_plan_cannot_disable_the_verification_by_given_authorities() {
        let plan = TlsArgs { tls_insecure: true, ..TlsArgs::default() };
        assert!(TlsArgs::default().for_plan(&plan).tls_insecure);
        let own = TlsArgs { ca: Some(PathBuf::from("ca.pem")), ..TlsArgs::default() };
        assert!(!own.for_plan(&plan).tls_insecure);
        assert!(plan.for_plan(&TlsArgs::default()).tls_insecure);
    }
}
