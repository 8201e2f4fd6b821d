//! A real DNS server for tests: dnsmasq with given records.

#![allow(clippy::disallowed_methods)] // It takes a moment until the server listens.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The domain of the records. The server answers that no other name in this domain exists.
pub const DOMAIN: &str = "test";

/// Time to live of all records, in seconds.
pub const TTL_S: u64 = 77;

/// Maximum time for which a test waits until a server listens.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// A running server, stopped when it is dropped.
pub struct NameServer {
    child: Child,
    address: SocketAddr,
}

impl NameServer {
    /// Starts a server at a free port of `ip`, a loopback address, with these records. Each record
    /// is an option of dnsmasq, such as `--srv-host=_sip._udp.a.test,b.test,5060,10,20`.
    pub fn start(ip: IpAddr, records: &[&str]) -> Self {
        // Another process may take the port before the server does.
        (0..5).find_map(|_| Self::start_at(free(ip), records)).expect("a port stays free")
    }

    /// Returns the address of the server, for queries over UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn start_at(address: SocketAddr, records: &[&str]) -> Option<Self> {
        // Debian installs dnsmasq in /usr/sbin, which is not in the path of every user.
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let child = Command::new("dnsmasq")
            .env("PATH", path)
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--user="])
            .args(["--no-resolv", "--no-poll", "--no-hosts", "--bind-interfaces"])
            .arg(format!("--listen-address={}", address.ip()))
            .arg(format!("--port={}", address.port()))
            .args([format!("--local=/{DOMAIN}/"), format!("--local-ttl={TTL_S}")])
            .args(records)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("dnsmasq is missing; scripts/setup test installs it");
        let mut server = Self { child, address };
        let until = Instant::now() + LISTENS_WITHIN;
        while Instant::now() < until {
            if server.child.try_wait().expect("the state of dnsmasq can be read").is_some() {
                return None;
            }
            if TcpStream::connect(address).is_ok() {
                return Some(server);
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an address at a port that is free for UDP and for TCP.
fn free(ip: IpAddr) -> SocketAddr {
    let both = || {
        let tcp = TcpListener::bind((ip, 0)).expect("there is a free port");
        let address = tcp.local_addr().expect("it is bound");
        UdpSocket::bind(address).is_ok().then_some(address)
    };
    (0..100).find_map(|_| both()).expect("a port is free for both transports")
}
