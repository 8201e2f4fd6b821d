//! The values that tshark finds: one run over a capture file with a datagram for each message.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Found;
use super::corpus::Case;

/// Our name and tshark's name of each field.
const NAMES: [(&str, &str); 13] = [
    ("method", "sip.Method"),
    ("uri", "sip.r-uri"),
    ("status", "sip.Status-Code"),
    ("call-id", "sip.Call-ID"),
    ("cseq number", "sip.CSeq.seq"),
    ("cseq method", "sip.CSeq.method"),
    ("via branches", "sip.Via.branch"),
    ("via hosts", "sip.Via.sent-by.address"),
    ("via ports", "sip.Via.sent-by.port"),
    ("from tag", "sip.from.tag"),
    ("to tag", "sip.to.tag"),
    ("max-forwards", "sip.Max-Forwards"),
    ("content-length", "sip.Content-Length"),
];
const LINES: [(&str, &str); 3] = [
    ("via lines", "sip.Via"),
    ("route lines", "sip.Route"),
    ("record-route lines", "sip.Record-Route"),
];
/// The fields whose values all count. Of any other field, only the first value counts.
const LISTS: [&str; 3] = ["via branches", "via hosts", "via ports"];

/// Runs tshark on the messages. Returns one set of findings for each message.
pub fn dissect(cases: &[Case]) -> Vec<Found> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("differential-{}.pcap", std::process::id()));
    fs::write(&file, capture(cases)).expect("a capture file");
    let mut command = Command::new("tshark");
    // Use tshark's own defaults, whatever the configuration of the user.
    command.env("WIRESHARK_CONFIG_DIR", folder.join("no-configuration"));
    command.args(["-n", "-r"]).arg(&file).args(["-d", "udp.port==5060,sip", "-T", "json"]);
    for (_, name) in NAMES.iter().chain(&LINES) {
        command.args(["-e", name]);
    }
    let output = command.output();
    let output = output.expect("tshark, which `make setup` installs (apt-get install tshark)");
    fs::remove_file(&file).expect("our own file");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {said}");
    let packets: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    packets.as_array().expect("a list of packets").iter().map(found).collect()
}

fn found(packet: &Value) -> Found {
    let layers = &packet["_source"]["layers"];
    let values = |name: &str| -> Vec<String> {
        let values = layers[name].as_array().map_or(&[][..], Vec::as_slice);
        values.iter().filter_map(Value::as_str).map(|text| text.trim().to_owned()).collect()
    };
    let mut found = Found::new();
    for (field, name) in NAMES {
        let mut texts = values(name);
        if !LISTS.contains(&field) {
            texts.truncate(1);
        }
        if !texts.is_empty() {
            found.insert(field, texts);
        }
    }
    for (field, name) in LINES {
        let count = values(name).len();
        if count > 0 {
            found.insert(field, vec![count.to_string()]);
        }
    }
    found
}

/// Builds a capture file: each message in a UDP datagram from port 5060 to port 5060, in IPv4,
/// without a link layer.
fn capture(cases: &[Case]) -> Vec<u8> {
    const RAW_IP: u32 = 101;
    let mut file = Vec::new();
    let word = |file: &mut Vec<u8>, n: u32| file.extend_from_slice(&n.to_le_bytes());
    // https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html §4: magic number, version 2.4,
    // two unused words, maximum packet length, link type.
    for n in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 262_144, RAW_IP] {
        word(&mut file, n);
    }
    for (i, case) in cases.iter().enumerate() {
        let length = 20 + 8 + case.bytes.len() as u32;
        // Timestamp in s and µs, captured length, original length.
        for n in [i as u32, 0, length, length] {
            word(&mut file, n);
        }
        let short = |n: u32| u16::try_from(n).expect("a datagram").to_be_bytes();
        file.extend_from_slice(&[0x45, 0]);
        file.extend_from_slice(&short(length));
        file.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        for n in [5060, 5060, length - 20, 0] {
            file.extend_from_slice(&short(n));
        }
        file.extend_from_slice(&case.bytes);
    }
    file
}
