//! The certificates and keys that a configuration names, read from their files.
//!
//! Tidegate reads these files when it starts and at a reload, and `tidegate check` reads them too.
//! A replay uses the configuration of a recording without them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DEFAULT_VERSIONS, RootCertStore, ServerConfig};
use toml::Spanned;
use x509_parser::x509::X509Version;

use super::accept_any::AcceptAny;
use super::diagnostic::Report;
use super::document::{self, Document};
use super::endpoint::Endpoint;
use super::pool;
use super::section::Section;
use super::tables::ROOT;
use super::tables::listen::{ClientCertificate, LISTEN, ListenDraft};
use super::tables::pool::POOL;

/// The file with the certificates of the authorities that a Debian system trusts.
pub const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The TLS settings of a configuration, with the content of the files that it names.
#[derive(Debug)]
pub struct TlsFiles {
    /// The TLS settings of each listener, or `None` for a listener without TLS.
    pub listeners: Vec<Option<Arc<ServerConfig>>>,
    /// The TLS settings of each pool that is reached over TLS, by the name of the pool.
    pub pools: BTreeMap<String, PoolClient>,
    /// The certificates by which Tidegate identifies itself, one for each file.
    pub certificates: Vec<Certificate>,
}

/// The TLS settings toward the back ends of a pool.
#[derive(Clone, Debug)]
pub struct PoolClient {
    /// The TLS settings.
    pub config: Arc<ClientConfig>,
    /// The name that the certificates of all back ends must contain: the configured name, or the
    /// domain if the pool consists of one domain. If there is no such name, each certificate must
    /// contain the domain whose SRV records list the back end, or otherwise the host in the URI of
    /// the back end.
    ///
    /// RFC 5922 §4: the identity of a server of a domain is the domain, not its host name.
    pub name: Option<ServerName<'static>>,
}

/// A certificate of Tidegate.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The file that contains the certificate.
    pub path: PathBuf,
    /// The time from which the certificate is valid, since the Unix epoch.
    pub valid_from: Duration,
    /// The time up to which the certificate is valid, since the Unix epoch.
    pub valid_to: Duration,
}

impl Certificate {
    /// Returns the reason why peers do not accept the certificate at `now`, which is a time since
    /// the Unix epoch. Returns `None` if the certificate is valid then.
    pub fn warning(&self, now: Duration) -> Option<String> {
        let path = self.path.display();
        if now > self.valid_to {
            let days = (now - self.valid_to).as_secs() / 86_400;
            Some(format!(
                "the certificate {path} expired {days} days ago: renew it, and reload Tidegate"
            ))
        } else if now < self.valid_from {
            Some(format!(
                "the certificate {path} is not valid yet: check the clock of this machine"
            ))
        } else {
            None
        }
    }
}

impl TlsFiles {
    /// Reads the certificate and key files that the configuration `document` names. Reports an error
    /// for each file that cannot be used. The result is complete only if `report` is empty.
    pub(super) fn read(document: &Document<'_>, report: &mut Report) -> Self {
        // The tables are read again for the positions of the keys. Errors in them have been
        // reported.
        let root = Section::root(&ROOT, document.table(), &mut Report::default());
        let listeners = root.read_all(&LISTEN, ListenDraft::read, &mut Report::default());
        let pools = root.read_all(&POOL, pool::Draft::read, &mut Report::default());
        let provider = Arc::new(ring::default_provider());
        let mut reader = Reader { provider, certificates: Vec::new(), report };
        let tls = listeners.iter().map(|listener| reader.listener(listener)).collect();
        let mut clients = BTreeMap::new();
        let is_secure = |pool: &&pool::Draft| {
            pool.is_transport_known(&listeners) && pool.reached_by(&listeners).is_secure()
        };
        for pool in pools.iter().filter(is_secure) {
            if let (Some(client), Some(name)) = (reader.pool(pool), &pool.name) {
                clients.insert(name.get_ref().clone(), client);
            }
        }
        Self { listeners: tls, pools: clients, certificates: reader.certificates }
    }
}

/// A reader of the files that a configuration names. It collects the errors in them.
struct Reader<'r> {
    provider: Arc<CryptoProvider>,
    certificates: Vec<Certificate>,
    report: &'r mut Report,
}

impl Reader<'_> {
    fn listener(&mut self, draft: &ListenDraft) -> Option<Arc<ServerConfig>> {
        // The keys of a listener without TLS have no effect, which has been reported.
        draft.transport.as_ref().filter(|by| by.get_ref().is_secure())?;
        let (certificates, keys) = (draft.certificates.as_ref()?, draft.private_keys.as_ref()?);
        let mut identities = Vec::new();
        for (certificate, key) in certificates.get_ref().iter().zip(keys.get_ref()) {
            identities.extend(self.identity(
                &Spanned::new(certificates.span(), certificate.clone()),
                &Spanned::new(keys.span(), key.clone()),
            ));
        }
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(DEFAULT_VERSIONS)
            .expect("the provider has suites for both versions");
        let builder = match &draft.client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(self.authorities(ca.span(), ca.get_ref())?);
                let provider = Arc::clone(&self.provider);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let asked = draft.client_certificate.as_ref().map(|asked| *asked.get_ref());
                if asked == Some(ClientCertificate::Optional) {
                    verifier = verifier.allow_unauthenticated();
                }
                builder.with_client_cert_verifier(verifier.build().ok()?)
            }
        };
        Some(Arc::new(builder.with_cert_resolver(Arc::new(ByName(identities)))))
    }

    fn pool(&mut self, draft: &pool::Draft) -> Option<PoolClient> {
        let tls = &draft.tls;
        // If `ca` could not be read, the pool does not have the default authorities.
        let verify = *tls.verify.as_ref().filter(|_| tls.wrong.is_empty())?.get_ref();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(DEFAULT_VERSIONS)
            .expect("the provider has suites for both versions");
        let verifier: Arc<dyn ServerCertVerifier> = if verify {
            let (span, ca) = match &tls.ca {
                Some(ca) => (ca.span(), ca.get_ref().as_path()),
                None => (draft.transport_span(), Path::new(SYSTEM_AUTHORITIES)),
            };
            let roots = Arc::new(self.authorities(span, ca)?);
            let provider = Arc::clone(&self.provider);
            WebPkiServerVerifier::builder_with_provider(roots, provider).build().ok()?
        } else {
            Arc::new(AcceptAny::new(Arc::clone(&self.provider)))
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = match (&tls.certificate, &tls.private_key) {
            (Some(certificate), Some(key)) => {
                let identity = self.identity(certificate, key)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
            _ => builder.with_no_client_auth(),
        };
        let domain = || {
            let [only] = &draft.backends[..] else { return None };
            match only.endpoint.as_ref()?.get_ref() {
                Endpoint::Domain(domain) => ServerName::try_from(domain.clone()).ok(),
                Endpoint::Address(_) | Endpoint::Name(_) => None,
            }
        };
        let name = tls.server_name.as_ref().map(|name| name.get_ref().clone()).or_else(domain);
        Some(PoolClient { config: Arc::new(config), name })
    }

    /// Reads a certificate with its chain of authorities, and its private key.
    fn identity(
        &mut self,
        certificate: &Spanned<PathBuf>,
        key: &Spanned<PathBuf>,
    ) -> Option<Arc<CertifiedKey>> {
        let chain = self.certificates_in(certificate.span(), certificate.get_ref());
        let path = key.get_ref();
        let title = || format!("the private key {} cannot be used", path.display());
        let private = match PrivateKeyDer::from_pem_file(path) {
            Ok(private) => Some(private),
            Err(error) if !matches!(error, pem::Error::Io(_)) && is_encrypted(path) => {
                let help = "remove the passphrase with `openssl pkey -in OLD -out NEW`, and name \
                            the new file";
                self.report.error(
                    key.span(),
                    title(),
                    "the key is encrypted with a passphrase",
                    help,
                );
                None
            }
            Err(error) => {
                self.report_unusable(key.span(), path, "private key", &error);
                None
            }
        };
        let (chain, private) = (chain?, private?);
        let signing = match self.provider.key_provider.load_private_key(private) {
            Ok(signing) => signing,
            Err(error) => {
                let help =
                    "use an RSA key of at least 2,048 bits, or a P-256, P-384 or Ed25519 key";
                self.report.error(key.span(), title(), error.to_string(), help);
                return None;
            }
        };
        let identity = CertifiedKey::new(chain, signing);
        let since_epoch = |at: i64| Duration::from_secs(u64::try_from(at).unwrap_or_default());
        let parsed = x509_parser::parse_x509_certificate(identity.end_entity_cert().ok()?);
        let version_3 = "make an X.509 certificate of version 3 with subjectAltName, such as with \
                         `openssl x509 -req` and its option `-extfile`";
        let other = "make a certificate that TLS programs accept: with a valid encoding, and with \
                     no unusual extension marked as critical";
        let validity = match (parsed, identity.keys_match()) {
            // RFC 5280 §4.1.2.9: only version 3 has extensions, such as subjectAltName.
            (Ok((_, parsed)), _) if parsed.version() != X509Version::V3 => {
                let version = parsed.version().0.saturating_add(1);
                Err((format!("an X.509 certificate of version {version}"), version_3))
            }
            (_, Err(rustls::Error::InconsistentKeys(_))) => {
                self.report.clash(
                    title(),
                    (key.span(), "this key does not belong to the certificate"),
                    (certificate.span(), "the certificate"),
                    "write the path of the key that belongs to the certificate",
                );
                return None;
            }
            (Ok((_, parsed)), Ok(())) => Ok(parsed.validity().clone()),
            (Err(error), _) => Err((error.to_string(), version_3)),
            // The error text of rustls would call it the certificate of the peer.
            (_, Err(rustls::Error::InvalidCertificate(error))) => Err((error.to_string(), other)),
            (_, Err(error)) => Err((error.to_string(), other)),
        };
        let path = certificate.get_ref();
        let validity = match validity {
            Ok(validity) => validity,
            Err((label, help)) => {
                let title = format!("the certificate {} cannot be used", path.display());
                self.report.error(certificate.span(), title, label, help);
                return None;
            }
        };
        if self.certificates.iter().all(|known| known.path != *path) {
            self.certificates.push(Certificate {
                path: path.clone(),
                valid_from: since_epoch(validity.not_before.timestamp()),
                valid_to: since_epoch(validity.not_after.timestamp()),
            });
        }
        Some(Arc::new(identity))
    }

    fn authorities(&mut self, span: Range<usize>, path: &Path) -> Option<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(self.certificates_in(span.clone(), path)?);
        if added == 0 {
            let title = format!("the file {} contains no CA certificate", path.display());
            let help = "name a PEM file with CA certificates";
            self.report.error(span, title, "", help);
            return None;
        }
        Some(roots)
    }

    fn certificates_in(
        &mut self,
        span: Range<usize>,
        path: &Path,
    ) -> Option<Vec<CertificateDer<'static>>> {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<_, _>>);
        match read {
            Ok(read) if Vec::is_empty(&read) => {
                self.report_unusable(span, path, "certificate", &pem::Error::NoItemsFound);
                None
            }
            Ok(read) => Some(read),
            Err(error) => {
                self.report_unusable(span, path, "certificate", &error);
                None
            }
        }
    }

    fn report_unusable(&mut self, span: Range<usize>, path: &Path, what: &str, error: &pem::Error) {
        let (label, help) = match error {
            pem::Error::Io(error) => (
                error.to_string(),
                "name a file that exists and that this process may read".to_owned(),
            ),
            pem::Error::NoItemsFound => {
                (format!("the file contains no {what}"), format!("name a PEM file with a {what}"))
            }
            other => (other.to_string(), format!("name a PEM file with a {what}")),
        };
        self.report.error(
            span,
            format!("the {what} file {} cannot be used", path.display()),
            label,
            help,
        );
    }
}

/// Returns whether the file at `path` contains a private key that is encrypted with a passphrase:
/// `ENCRYPTED PRIVATE KEY` (RFC 7468 §11), or the older `Proc-Type: 4,ENCRYPTED` (RFC 1421
/// §4.6.1.1).
fn is_encrypted(path: &Path) -> bool {
    const WORD: &[u8] = b"ENCRYPTED";
    document::read(path).is_ok_and(|text| text.windows(WORD.len()).any(|part| part == WORD))
}

/// A resolver that selects the certificate for the host name that a client asks for (RFC 6066 §3).
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let suits = |name: &ServerName<'_>, key: &CertifiedKey| {
            let parsed = key.end_entity_cert().and_then(ParsedCertificate::try_from);
            parsed.is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
        };
        let named = name.and_then(|name| self.0.iter().find(|key| suits(&name, key)));
        named.or_else(|| self.0.first()).cloned()
    }
}

/// Reports listeners with TLS that do not have one private key for each certificate, or have no
/// certificate at all. Also reports `client_certificate` without `client_ca`.
pub(super) fn check_listeners(drafts: &[ListenDraft], report: &mut Report) {
    for draft in drafts {
        let Some(transport) = draft.transport.as_ref().filter(|by| by.get_ref().is_secure()) else {
            continue;
        };
        let is_wrong = |key| draft.wrong.contains(&key);
        match (&draft.certificates, &draft.private_keys) {
            _ if is_wrong("certificate") || is_wrong("private_key") => {}
            (Some(certificates), Some(keys)) => {
                let count = certificates.get_ref().len();
                if count != keys.get_ref().len() {
                    report.clash(
                        "`certificate` and `private_key` name different numbers of files",
                        (keys.span(), &format!("{} files", keys.get_ref().len())),
                        (certificates.span(), &format!("{count} files")),
                        "write one key for each certificate, in the same order",
                    );
                }
            }
            (certificates, keys) => {
                let missing = if certificates.is_none() { "certificate" } else { "private_key" };
                let span = certificates.as_ref().or(keys.as_ref()).map(Spanned::span);
                report.error(
                    span.unwrap_or_else(|| transport.span()),
                    format!("a listener with TLS lacks `{missing}`"),
                    "",
                    format!("add `{missing} = \"/etc/tidegate/…\"`, a PEM file"),
                );
            }
        }
        if let (None, Some(asked)) = (&draft.client_ca, &draft.client_certificate)
            && asked.span() != draft.span
            && !is_wrong("client_ca")
        {
            report.error(
                asked.span(),
                "`client_certificate` has no effect",
                "without `client_ca`, Tidegate does not ask clients for certificates",
                "remove `client_certificate`, or add `client_ca`",
            );
        }
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
