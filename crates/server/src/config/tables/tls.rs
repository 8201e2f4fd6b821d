//! `[pool.tls]`.

use std::ops::Range;
use std::path::PathBuf;

use rustls::pki_types::ServerName;
use toml::Spanned;

use crate::config::diagnostic::Report;
use crate::config::keys::{Only, table};
use crate::config::shape::{Flag, Text};
use crate::config::word;

/// The path of a file with certificates or keys.
pub(in crate::config) const PEM_FILE: Text<PathBuf> = Text {
    what: "the absolute path of a PEM file, such as `\"/etc/tidegate/example.com.pem\"`",
    parse: word::directory,
    write: |path| path.display().to_string(),
};

static VERIFIED: Only<PoolTlsDraft> = Only {
    by: "verify",
    when: |tls| tls.verify.as_ref().is_none_or(|verify| *verify.get_ref()),
    why: "with `verify = false` Tidegate verifies no certificate",
    instead: "write `verify = true`",
};

table! {
    /// The certificates for connections to the back ends of the preceding pool, with `transport =
    /// "tls"`. A reload reads the files again. Existing connections stay open.
    pub static POOL_TLS: "[pool.tls]" 0..=1, NewCalls, [] => PoolTls, PoolTlsDraft;

    /// A PEM file with the CA certificates that verify the certificates of the back ends.
    ca: PathBuf | None = PEM_FILE, Means("the authorities that this machine trusts, in `/etc/ssl/certs/ca-certificates.crt`"),
        only(&VERIFIED);
    /// The host name or IP address that the certificates of the back ends must contain.
    server_name: ServerName<'static> | None = Text {
        what: "a host name or an IP address, such as `\"sip.example.com\"`",
        parse: word::peer_name,
        write: |name| name.to_str().into_owned(),
    }, Means("the host in the `uri` of the back end");
    /// `false`: Tidegate accepts any certificate. Anyone between Tidegate and its back ends can
    /// then read and change calls.
    verify: bool = Flag, Default("true");
    /// A PEM file with the certificate of Tidegate, followed by the certificates of its
    /// authorities. Back ends that ask for a certificate get this one.
    certificate: PathBuf | None = PEM_FILE, Means("none");
    /// The PEM file with the private key of `certificate`.
    private_key: PathBuf | None = PEM_FILE, Means("none");
}

impl PoolTlsDraft {
    /// Reports a certificate without its key, and a key without its certificate.
    pub(in crate::config) fn check(&self, report: &mut Report) {
        let (given, missing) = match (&self.certificate, &self.private_key) {
            (Some(given), None) if !self.wrong.contains(&"private_key") => (given, "private_key"),
            (None, Some(given)) if !self.wrong.contains(&"certificate") => (given, "certificate"),
            _ => return,
        };
        let title = format!("`[pool.tls]` lacks `{missing}`");
        report.error(given.span(), title, "", format!("add `{missing} = …`, or remove this key"));
    }

    /// Returns the position in the file of the first key that is given.
    pub(in crate::config) fn given(&self) -> Option<Range<usize>> {
        let spans = [
            self.ca.as_ref().map(Spanned::span),
            self.server_name.as_ref().map(Spanned::span),
            self.verify.as_ref().map(Spanned::span),
            self.certificate.as_ref().map(Spanned::span),
            self.private_key.as_ref().map(Spanned::span),
        ];
        // A value with the position of the table header is a default, which is not in the file.
        spans.into_iter().flatten().find(|span| *span != self.span)
    }
}
