use std::fs;

use rcgen::{
    CertificateParams, CertifiedKey, CustomExtension, KeyPair, generate_simple_self_signed,
};

use super::*;
use crate::config::Config;

/// A certificate of X.509 version 1, as OpenSSL 3.0 makes it without `-extfile`.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBIjCByQIUBNhmeEaQ0QpIq1IKh/T/rcYo5+cwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MB4XDTI2MTIwMTAyMzYxNFoXDTM2MTEyODAyMzYxNFow
FDESMBAGA1UEAwwJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
uXAxk/dWQVyD5yTlQ+aDbwjx74Xo+JCFLd4kc7Sp6kkfzzgd6gtwsBSyhXCu189S
JYPdciw3FfF5YFOURXWyVTAKBggqhkjOPQQDAgNIADBFAiApQ/KBpoAyIb3DJn0I
4X/u42LX7UxNTTeZHrAJru0MgQIhAJUuj3yCWPh5E5kadKAYZAvHKRJKpi0HsREg
B9PwCBl7
-----END CERTIFICATE-----
";

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
    rejected(&text)
}

/// Returns the errors in the configuration `text` and in the files that it names.
fn rejected(text: &str) -> String {
    let read = Config::parse_with_files(Path::new("t.toml"), text.as_bytes());
    read.expect_err("a file or the configuration is wrong").to_string()
}

/// A regression: errors in the files were reported only when the configuration had none.
#[test]
fn errors_in_the_configuration_and_in_its_files_are_reported_at_once() {
    let text = |transport: &str, verify: &str| {
        format!(
            "[server]\nshards = 0\n[[listen]]\ntransport = \"{transport}\"\n\
             address = \"127.0.0.1:5061\"\ncertificate = \"/none/own.pem\"\n\
             private_key = \"/none/own.key\"\n[[pool]]\nname = \"app\"\n\
             [[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n[pool.tls]\n\
             verify = {verify}\nca = \"/none/ca.pem\"\n"
        )
    };
    let shown = rejected(&text("tls", "true"));
    for part in ["`shards` is out of bounds", "/none/own.pem", "/none/own.key", "/none/ca.pem"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.ends_with("t.toml: 4 errors\n"), "{shown}");
    // A file whose key has no effect, or may have none, is not read.
    let shown = rejected(&text("tls", "1"));
    assert!(shown.contains("/none/own.pem") && !shown.contains("/none/ca.pem"), "{shown}");
    let shown = rejected(&text("udp", "true"));
    assert!(!shown.contains("cannot be used"), "{shown}");
}

/// A regression: for a pool whose `listener` was wrong, the usual transport decided whether its
/// keys have an effect and its files are read.
#[test]
fn a_wrong_key_does_not_decide_the_transport_of_a_pool() {
    let text = |first: &str, second: &str, key: &str, ca: &str| {
        let listen = |transport: &str| match transport {
            "tls" => {
                "[[listen]]\nname = \"in\"\ntransport = \"tls\"\naddress = \"127.0.0.1:5061\"\n\
                 certificate = \"/none/own.pem\"\nprivate_key = \"/none/own.key\"\n"
            }
            _ => "[[listen]]\nname = \"out\"\ntransport = \"tcp\"\naddress = \"127.0.0.1:5060\"\n",
        };
        format!(
            "{}{}[[pool]]\nname = \"app\"\n{key}\n[[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n\
             [pool.tls]\n{ca}\n",
            listen(first),
            listen(second),
        )
    };
    for key in ["transport = \"tsl\"", "transprt = \"tls\"", "listener = \"inn\"", "listener = 5"] {
        let text = text("tcp", "tls", key, "server_name = \"a.example\"");
        let shown = Config::parse(Path::new("t.toml"), text.as_bytes()).unwrap_err().to_string();
        assert!(shown.ends_with("t.toml: 1 error\n"), "{key}: {shown}");
    }
    for key in ["transport = \"tpc\"", "transprt = \"tcp\"", "listener = \"outt\"", "listener = 5"]
    {
        let large = format!("{key}\nlarge_requests = \"tcp\"");
        let shown = rejected(&text("tls", "tcp", &large, "ca = \"/none/ca.pem\""));
        assert!(!shown.contains("/none/ca.pem cannot"), "{key}: {shown}");
        // The other errors are those in the two files of the listener.
        assert!(shown.ends_with("t.toml: 3 errors\n"), "{key}: {shown}");
    }
    let known = rejected(&text("tls", "tcp", "listener = \"in\"", "ca = \"/none/ca.pem\""));
    assert!(known.contains("/none/ca.pem cannot"), "{known}");
}

/// Further errors would only be counted. The files are read after all other errors.
#[test]
fn files_are_not_read_if_no_further_error_is_shown() {
    let unknown: String = (0..60).map(|n| format!("unknown_key_{n} = 1\n")).collect();
    let shown = rejected(&format!(
        "{unknown}[[listen]]\ntransport = \"tls\"\naddress = \"127.0.0.1:5061\"\n\
         certificate = \"/none/own.pem\"\nprivate_key = \"/none/own.key\"\n[[pool]]\n\
         name = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:9\"\n"
    ));
    assert!(shown.ends_with("t.toml: 60 errors, of which the first 50 are shown\n"), "{shown}");
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

/// RFC 5280 §4.1.2.9: extensions such as subjectAltName "MUST only appear if the version is 3".
#[test]
fn an_error_in_the_certificate_is_not_reported_as_one_of_the_key() {
    let made = || generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let CertifiedKey { cert, signing_key } = made();
    let key = signing_key.serialize_pem();
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (certificate, label) in [(VERSION_1, "an X.509 certificate of version 1"), (garbage, "")] {
        let shown = errors(certificate, &key);
        assert!(shown.contains("error: the certificate /"), "{shown}");
        assert!(shown.contains(label) && !shown.contains("does not belong"), "{shown}");
        assert!(shown.contains("help: make an X.509 certificate of version 3"), "{shown}");
        assert!(shown.ends_with("1 error\n"), "{shown}");
    }
    let shown = errors(&cert.pem(), &made().signing_key.serialize_pem());
    assert!(shown.contains("this key does not belong to the certificate"), "{shown}");
}

/// RFC 5280 §4.2: a program "MUST reject the certificate if it encounters a critical extension it
/// does not recognize".
#[test]
fn a_certificate_with_an_unknown_critical_extension_is_reported_as_such() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
    // An ASN.1 NULL.
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions = vec![extension];
    let shown = errors(&params.self_signed(&key).unwrap().pem(), &key.serialize_pem());
    assert!(shown.contains("Critical") && !shown.contains("peer certificate"), "{shown}");
    assert!(shown.contains("help: make a certificate that TLS programs accept"), "{shown}");
    assert!(shown.ends_with("1 error\n"), "{shown}");
}
