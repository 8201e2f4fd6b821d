//! Minimal DNS server: a socket, and a few records.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// DNS server with the IPv4 addresses of some hosts and the servers of some domains.
pub struct NameServer {
    address: SocketAddr,
    hosts: Hosts,
}

/// The records by name. `None` means that the server does not answer queries for the name. A name
/// that is not in the map does not exist.
type Hosts = Arc<Mutex<BTreeMap<String, Option<Records>>>>;

/// Records of a name.
#[derive(Clone)]
struct Records {
    /// Record type, by number.
    kind: u8,
    ttl_s: u32,
    data: Vec<Vec<u8>>,
}

const A: u8 = 1;
const SRV: u8 = 33;

impl NameServer {
    /// Starts a server on a free port of `ip`. It ends with the test process.
    pub fn start(ip: IpAddr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).expect("a free port");
        let address = socket.local_addr().expect("a bound socket has an address");
        let hosts = Hosts::default();
        let known = Arc::clone(&hosts);
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let response = response(&buffer[..length], &known);
                if let Some(response) = response {
                    // Sending fails if the client has exited.
                    let _ = socket.send_to(&response, from);
                }
            }
        });
        Self { address, hosts }
    }

    /// Returns the configuration table that names this server.
    pub fn table(&self) -> String {
        format!("[resolver]\nservers = [\"{}\"]\n", self.address)
    }

    /// Sets the addresses of a host.
    pub fn set(&self, host: &str, addresses: &[IpAddr], ttl_s: u32) {
        let v4 = |ip: &IpAddr| match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(_) => panic!("a server of IPv4 addresses"),
        };
        let data = addresses.iter().map(v4).collect();
        self.note(host, Some(Records { kind: A, ttl_s, data }));
    }

    /// Sets the SRV records of a domain for SIP over UDP: priority, weight, port and target of
    /// each.
    pub fn set_servers(&self, domain: &str, servers: &[(u16, u16, u16, &str)], ttl_s: u32) {
        let srv = |&(priority, weight, port, target): &(u16, u16, u16, &str)| {
            let mut data: Vec<u8> =
                [priority, weight, port].into_iter().flat_map(u16::to_be_bytes).collect();
            for label in target.split('.') {
                data.push(label.len() as u8);
                data.extend(label.as_bytes());
            }
            data.push(0);
            data
        };
        let data = servers.iter().map(srv).collect();
        self.note(&format!("_sip._udp.{domain}"), Some(Records { kind: SRV, ttl_s, data }));
    }

    /// Stops answering queries for a host.
    pub fn silence(&self, host: &str) {
        self.note(host, None);
    }

    fn note(&self, host: &str, answer: Option<Records>) {
        self.hosts.lock().expect("nobody panics").insert(host.to_owned(), answer);
    }
}

/// Returns the response of RFC 1035 §4: the header, the question as received, and the records of
/// its name.
fn response(request: &[u8], hosts: &Hosts) -> Option<Vec<u8>> {
    let mut labels = Vec::new();
    let mut at = 12;
    while *request.get(at)? != 0 {
        let end = at + 1 + usize::from(request[at]);
        labels.push(std::str::from_utf8(request.get(at + 1..end)?).ok()?.to_lowercase());
        at = end;
    }
    let question = request.get(12..at + 5)?;
    let kind = question[question.len() - 3];
    let found = hosts.lock().expect("nobody panics").get(&labels.join(".")).cloned();
    let (code, ttl_s, records) = match found {
        Some(None) => return None,
        Some(Some(answer)) if answer.kind == kind => (0, answer.ttl_s, answer.data),
        Some(Some(_)) => (0, 0, Vec::new()),
        None => (3, 0, Vec::new()),
    };
    let mut response = request[..2].to_vec();
    response.extend([0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    response.extend(question);
    for data in records {
        // The answer begins with a pointer to the name in the question, its type, and class IN.
        response.extend([0xc0, 12, 0, kind, 0, 1]);
        response.extend(ttl_s.to_be_bytes());
        response.extend([0, data.len() as u8]);
        response.extend(data);
    }
    Some(response)
}
