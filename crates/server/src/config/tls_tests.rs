use std::fs;

use rcgen::{CertifiedKey, generate_simple_self_signed};

use super::*;

/// Returns the errors in a configuration whose listener has a certificate file and a key file with
/// these contents.
fn errors(certificate: &str, key: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let [certificate, key] = [("own.pem", certificate), ("own.key", key)].map(|(name, content)| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    });
    let text = format!(
        "[[listen]]\ntransport = \"tls\"\naddress = \"127.0.0.1:5061\"\n\
         certificate = {certificate:?}\nprivate_key = {key:?}\n[[pool]]\nname = \"app\"\n\
         [[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n[pool.tls]\nverify = false\n"
    );
    let config = Config::parse(Path::new("t.toml"), text.as_bytes());
    let config = config.unwrap_or_else(|wrong| panic!("{wrong}"));
    TlsFiles::read(&config, text.as_bytes()).unwrap_err().to_string()
}

/// RFC 7468 §11: an encrypted key in PKCS #8 has the label `ENCRYPTED PRIVATE KEY`. RFC 1421
/// §4.6.1.1: in the older form, the header `Proc-Type` has the word `ENCRYPTED`.
#[test]
fn an_encrypted_private_key_is_reported_as_encrypted() {
    let CertifiedKey { cert, .. } = generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    for encrypted in [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
         DEK-Info: AES-256-CBC,F0AE7C1246CD67A684C5436AC0FA4752\n\nAAAA\n\
         -----END EC PRIVATE KEY-----\n",
    ] {
        let shown = errors(&cert.pem(), encrypted);
        assert!(shown.contains("the key is encrypted with a passphrase"), "{shown}");
        assert!(shown.contains("help: remove the passphrase with `openssl pkey"), "{shown}");
        assert!(shown.ends_with("1 error\n"), "{shown}");
    }
    let shown = errors(&cert.pem(), "no key\n");
    assert!(shown.contains("the file contains no private key"), "{shown}");
}
