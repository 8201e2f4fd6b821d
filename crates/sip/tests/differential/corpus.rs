//! The messages for both readers: the torture sets, generated messages, and damaged forms of both.

use std::fs;
use std::path::PathBuf;

/// The origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message of RFC 4475 or RFC 5118.
    Torture,
    /// A well-formed generated message.
    Generated,
    /// A torture or generated message with one random defect.
    Damaged,
}

/// One message.
pub struct Case {
    pub name: String,
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

impl Case {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Returns the head, from the start line to before the empty line.
    pub fn head(&self) -> String {
        let text = self.text();
        let end = text.find("\r\n\r\n").map_or(text.len(), |at| at + 2);
        text[..end].to_owned()
    }
}

/// Returns the torture messages, `messages` generated ones and as many damaged ones. The same seed
/// gives the same messages.
pub fn cases(seed: u64, messages: usize) -> Vec<Case> {
    let mut draw = Draw(seed);
    let mut cases = torture();
    for i in 0..messages {
        let bytes = generate(&mut draw, i).into_bytes();
        cases.push(Case { name: format!("generated-{i}"), kind: Kind::Generated, bytes });
    }
    for i in 0..messages {
        let of = &cases[draw.below(cases.len() - i)];
        let (name, bytes) = (format!("damaged-{i} ({})", of.name), of.bytes.clone());
        let bytes = damage(&mut draw, bytes);
        cases.push(Case { name, kind: Kind::Damaged, bytes });
    }
    cases
}

fn torture() -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in ["rfc4475", "rfc5118"] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
        for entry in fs::read_dir(folder).expect("a folder of messages") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "dat") {
                let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
                let bytes = fs::read(&path).expect("a message");
                cases.push(Case { name, kind: Kind::Torture, bytes });
            }
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and identical on all platforms.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const METHODS: [&str; 12] = [
    "INVITE",
    "ACK",
    "BYE",
    "CANCEL",
    "OPTIONS",
    "REGISTER",
    "MESSAGE",
    "SUBSCRIBE",
    "NOTIFY",
    "PUBLISH",
    "UPDATE",
    "X-y!1",
];
const HOSTS: [&str; 8] = [
    "example.com",
    "a.b-c.example.org",
    "192.0.2.7",
    "[2001:db8::7]",
    "[::1]",
    "[::ffff:192.0.2.1]",
    "EXAMPLE.net",
    "x",
];
const USERS: [&str; 9] = [
    "",
    "alice@",
    "bob:secret@",
    "+1-212;phone-context=x@",
    "%61lice@",
    "a%40b@",
    "user;x=1@",
    "?/&=+$,@",
    "%00@",
];
const URI_PARAMS: [&str; 7] =
    ["", "", ";lr", ";transport=tcp", ";user=phone;x", ";maddr=192.0.2.9", ";a=%3B%2c"];
const VIA_PARAMS: [&str; 10] = [
    "",
    "",
    ";rport",
    ";rport=5062",
    ";received=192.0.2.8",
    ";ttl=16;maddr=224.2.0.1",
    ";received=2001:db8::9",
    ";x=\"a;b,c\"",
    ";oc;oc-algo=\"loss,rate\"",
    ";extension",
];
const DISPLAYS: [&str; 8] =
    ["", "", "Bob ", "\"Bob\" ", "\"B, <o> ;b=\" ", "\"a \\\" b\" ", "two tokens ", "\"\" "];
const ADDRESS_PARAMS: [&str; 5] = ["", "", ";x", ";q=0.7", ";y=\"<;no>,\""];
const CALL_IDS: [&str; 5] =
    ["a84b4c76e66710", "x@192.0.2.3", "word%ZK-!.*_+'@word`~)(><:\\/[?}{", "1", "A-b.C@[::1]"];

/// Generates a well-formed message. Each unusual feature is rare, so that most messages have one or
/// none.
fn generate(draw: &mut Draw, i: usize) -> String {
    let method = draw.of(&METHODS);
    let version = if draw.one_in(100) { "Sip/2.0" } else { "SIP/2.0" };
    let start = if draw.one_in(3) {
        let status = 100 + draw.below(600);
        format!("{version} {status} {}", draw.of(&["OK", "", "Not Found", "a \"reason\"; 1"]))
    } else {
        let uri = match draw.below(12) {
            0 => "tel:+1-212-555-1212;x=y".to_owned(),
            1 => "urn:service:sos".to_owned(),
            _ => uri(draw),
        };
        format!("{method} {uri} {version}")
    };
    let vias: Vec<String> = (0..1 + draw.below(3)).map(|n| via(draw, i, n)).collect();
    let routes: Vec<String> = (0..draw.below(3)).map(|_| address(draw, true)).collect();
    let to_tag = if draw.one_in(2) { format!(";tag=t{i}") } else { String::new() };
    let from_tag = if draw.one_in(12) { String::new() } else { format!(";tag=f-{i}.%~") };
    let zeros = draw.of(&["", "", "", "00"]);
    let body = draw.of(&["", "", "v=0\r\n", "\r\n\r\nVia: no\r\n"]);
    let mut lines = Vec::new();
    list(draw, &mut lines, &["Via", "Via", "v", "VIA"], &vias);
    list(draw, &mut lines, &["Route", "Route", "ROUTE"], &routes);
    if draw.one_in(3) {
        let recorded = [address(draw, true), address(draw, true)];
        list(draw, &mut lines, &["Record-Route", "record-route"], &recorded);
    }
    let to = address(draw, false) + &to_tag;
    header(draw, &mut lines, &["To", "To", "t"], &to);
    let from = address(draw, false) + &from_tag;
    header(draw, &mut lines, &["From", "From", "f"], &from);
    let call_id = draw.of(&CALL_IDS);
    header(draw, &mut lines, &["Call-ID", "Call-ID", "i", "call-id"], call_id);
    let number = draw.next() as u32 >> 1;
    let gap = if draw.one_in(16) { "\r\n " } else { " " };
    header(draw, &mut lines, &["CSeq", "CSeq", "cseq"], &format!("{zeros}{number}{gap}{method}"));
    if !draw.one_in(8) {
        let hops = draw.below(256);
        header(draw, &mut lines, &["Max-Forwards", "mAX-fORWARDS"], &format!("{zeros}{hops}"));
    }
    if !draw.one_in(4) {
        let length = body.len().to_string();
        header(draw, &mut lines, &["Content-Length", "Content-Length", "l"], &length);
    }
    if draw.one_in(4) {
        header(draw, &mut lines, &["Subject", "s", "X-Via"], "SIP/2.0/UDP no;branch=no");
    }
    // Lines of the same name keep their order.
    let turn = draw.below(lines.len());
    lines.rotate_left(turn);
    format!("{start}\r\n{}\r\n{body}", lines.concat())
}

fn uri(draw: &mut Draw) -> String {
    let port = draw.of(&["", "", ":5070"]);
    let scheme = draw.of(&["sip", "sip", "sip", "sips", "SIP"]);
    let (user, host, params) = (draw.of(&USERS), draw.of(&HOSTS), draw.of(&URI_PARAMS));
    format!("{scheme}:{user}{host}{port}{params}")
}

fn address(draw: &mut Draw, bracketed: bool) -> String {
    let params = draw.of(&ADDRESS_PARAMS);
    if !bracketed && draw.one_in(4) {
        return format!("sip:alice@{}{params}", draw.of(&HOSTS));
    }
    let display = draw.of(&DISPLAYS);
    let uri = uri(draw);
    format!("{display}<{uri}>{params}")
}

fn via(draw: &mut Draw, i: usize, n: usize) -> String {
    let transport = draw.of(&["UDP", "UDP", "TCP", "TLS", "WS", "x-y"]);
    let space = |draw: &mut Draw| if draw.one_in(24) { " " } else { "" };
    let host = draw.of(&HOSTS);
    let port = match draw.below(3) {
        0 => format!("{}:{}{}", space(draw), space(draw), 1 + draw.below(65_535)),
        _ => String::new(),
    };
    let branch = match draw.below(10) {
        0 => String::new(),
        1 => format!(";branch=old{i}.{n}"),
        _ => format!(";{}branch{}={}z9hG4bK-{i}.{n}~'", space(draw), space(draw), space(draw)),
    };
    let (first, second) = match draw.of(&VIA_PARAMS) {
        params if draw.one_in(2) => (branch, params.to_owned()),
        params => (params.to_owned(), branch),
    };
    let (a, b) = (space(draw), space(draw));
    format!("SIP{a}/{b}2.0/{transport} {host}{port}{first}{second}")
}

/// Writes the values of one header, on one line or on several.
fn list(draw: &mut Draw, lines: &mut Vec<String>, names: &[&str], values: &[String]) {
    let mut rest = values;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(1 + draw.below(rest.len()));
        let comma = draw.of(&[",", ", ", ", ", " ,", ",\r\n "]);
        header(draw, lines, names, &now.join(comma));
        rest = later;
    }
}

fn header(draw: &mut Draw, lines: &mut Vec<String>, names: &[&str], value: &str) {
    let name = draw.of(names);
    let colon = match draw.below(24) {
        0 => ":",
        1 => " : ",
        2 => ":\r\n ",
        3 => ":\t",
        _ => ": ",
    };
    let end = if draw.one_in(24) { " \r\n" } else { "\r\n" };
    lines.push(format!("{name}{colon}{value}{end}"));
}

const FOREIGN: [&str; 16] = [
    ";",
    ",",
    "\"",
    "<",
    ">",
    ":",
    " ",
    "@",
    "=",
    "\r\n",
    "\n",
    "\r\n ",
    "%",
    "0",
    "Via: x\r\n",
    "tag=",
];

/// Applies one random defect: a change, insertion, deletion, swap, duplication or truncation.
fn damage(draw: &mut Draw, mut bytes: Vec<u8>) -> Vec<u8> {
    let at = draw.below(bytes.len());
    let end = (at + 1 + draw.below(12)).min(bytes.len());
    match draw.below(8) {
        0 | 1 => bytes[at] = b' ' + draw.below(95) as u8,
        2 | 3 => {
            bytes.splice(at..at, draw.of(&FOREIGN).bytes());
        }
        4 => {
            bytes.drain(at..end);
        }
        5 => {
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
        6 => bytes.swap(at, end - 1),
        _ => bytes.truncate(end),
    }
    bytes
}
