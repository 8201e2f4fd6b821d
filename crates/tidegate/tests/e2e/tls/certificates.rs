//! Certificates, made for a test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use crate::stage::Stage;

/// The first and the last year in which a certificate is valid.
pub type Years = (i32, i32);

pub const VALID: Years = (2020, 2199);
pub const EXPIRED: Years = (2020, 2021);

/// An authority that signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
    /// The file with the certificate of the authority.
    pub path: PathBuf,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new(stage: &Stage, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let path = stage.path(&format!("{name}.pem"));
        fs::write(&path, issuer.pem()).expect("a file");
        Self { issuer, folder: stage.path(""), path }
    }

    /// Signs a certificate for these names.
    pub fn sign(&self, file: &str, names: &[&str], years: Years) -> Identity {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 12, 31);
        params.distinguished_name.push(rcgen::DnType::CommonName, file);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path =
            |what: &str| -> PathBuf { Path::new(&self.folder).join(format!("{file}-{what}.pem")) };
        let identity = Identity { certificate: path("certificate"), key: path("key") };
        fs::write(&identity.certificate, certificate.pem()).expect("a file");
        fs::write(&identity.key, key.serialize_pem()).expect("a file");
        identity
    }
}
