//! A name server by hand: a socket, and a few addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// A server of the DNS that knows some hosts by their IPv4 addresses.
pub struct NameServer {
    address: SocketAddr,
    hosts: Hosts,
}

/// What is answered for a host: its addresses and seconds for which they hold, or nothing. Of
/// others is answered that there is no such name.
type Hosts = Arc<Mutex<BTreeMap<String, Option<(Vec<Ipv4Addr>, u32)>>>>;

impl NameServer {
    /// On a free port of `ip`. It ends with the process of the tests.
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
                    // Who asked may be gone.
                    let _ = socket.send_to(&response, from);
                }
            }
        });
        Self { address, hosts }
    }

    /// The table of a configuration in which it is asked.
    pub fn table(&self) -> String {
        format!("[resolver]\nservers = [\"{}\"]\n", self.address)
    }

    /// A host has these addresses from now on.
    pub fn set(&self, host: &str, addresses: &[IpAddr], ttl_s: u32) {
        let v4 = |ip: &IpAddr| match ip {
            IpAddr::V4(v4) => *v4,
            IpAddr::V6(_) => panic!("a server of IPv4 addresses"),
        };
        self.note(host, Some((addresses.iter().map(v4).collect(), ttl_s)));
    }

    /// Nothing is answered for a host from now on.
    pub fn silence(&self, host: &str) {
        self.note(host, None);
    }

    fn note(&self, host: &str, answer: Option<(Vec<Ipv4Addr>, u32)>) {
        self.hosts.lock().expect("nobody panics").insert(host.to_owned(), answer);
    }
}

/// RFC 1035 §4: the header, the question as it came, and an address for each record.
fn response(request: &[u8], hosts: &Hosts) -> Option<Vec<u8>> {
    let mut labels = Vec::new();
    let mut at = 12;
    while *request.get(at)? != 0 {
        let end = at + 1 + usize::from(request[at]);
        labels.push(std::str::from_utf8(request.get(at + 1..end)?).ok()?.to_lowercase());
        at = end;
    }
    let question = request.get(12..at + 5)?;
    let asks_a = question[question.len() - 4..] == [0, 1, 0, 1];
    let found = hosts.lock().expect("nobody panics").get(&labels.join(".")).cloned();
    let (code, (addresses, ttl_s)) = match found {
        Some(None) => return None,
        Some(Some(answer)) if asks_a => (0, answer),
        Some(Some(_)) => (0, (Vec::new(), 0)),
        None => (3, (Vec::new(), 0)),
    };
    let mut response = request[..2].to_vec();
    response.extend([0x81, 0x80 | code, 0, 1, 0, addresses.len() as u8, 0, 0, 0, 0]);
    response.extend(question);
    for address in addresses {
        // The name of the question, type A, class IN.
        response.extend([0xc0, 12, 0, 1, 0, 1]);
        response.extend(ttl_s.to_be_bytes());
        response.extend([0, 4]);
        response.extend(address.octets());
    }
    Some(response)
}
