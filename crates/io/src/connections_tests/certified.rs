//! TLS settings of a server and of its clients.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate for one host name, in the TLS settings of the server and of its clients.
pub struct Certified {
    pub server: Arc<ServerConfig>,
    pub client: Arc<ClientConfig>,
}

pub fn certified(name: &str) -> Certified {
    certified_by(default_provider(), name)
}

/// Returns the settings of both sides. The server encrypts with `provider`.
pub(crate) fn certified_by(provider: CryptoProvider, name: &str) -> Certified {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([name.to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    Certified { server: Arc::new(server), client: Arc::new(client) }
}
