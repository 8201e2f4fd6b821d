//! A proxy to which the INVITEs of one attacker look like INVITEs to many numbers from several
//! addresses.

use std::net::{Ipv4Addr, SocketAddr};

use tidegate_server::assembly::Server;
use tidegate_world::{Core, Pool, Received, Timestamp, Transmit, delegate};

/// Number of different called numbers that the proxy sees. The attacker calls one number.
const NUMBERS: u32 = 16;

/// Number of different source addresses that the proxy sees. The attacker has one address.
const ADDRESSES: u32 = 4;

/// A proxy that gets an attacker's INVITEs in changed form. The packets that the proxy sends are
/// changed back, so no other node sees the evidence that the proxy has against its back ends.
pub struct Disguise {
    proxy: Server,
    count: u32,
    stranger: Option<SocketAddr>,
    pool: Pool,
}

impl Disguise {
    pub fn new(proxy: Server) -> Self {
        Self { proxy, count: 0, stranger: None, pool: Pool::new() }
    }
}

fn number(n: u32) -> String {
    format!("sip:closed{}@", n % NUMBERS)
}

fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, (n % ADDRESSES) as u8)
}

impl Core for Disguise {
    fn offer(&mut self, now: Timestamp, mut received: Received) {
        let text = String::from_utf8(received.bytes.to_vec()).expect("agents write text");
        if text.starts_with("INVITE sip:closed@") {
            let text = text.replace("sip:closed@", &number(self.count));
            received.bytes = self.pool.copy(text.as_bytes());
            self.stranger = Some(received.flow.remote);
            received.flow.remote.set_ip(address(self.count).into());
            self.count += 1;
        }
        self.proxy.offer(now, received);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        let Transmit { mut flow, bytes, .. } = self.proxy.poll_transmit()?;
        let text = String::from_utf8(bytes.to_vec()).expect("agents write text");
        let shown = (0..NUMBERS).fold(text, |text, n| text.replace(&number(n), "sip:closed@"));
        if let Some(stranger) = self.stranger
            && (0..ADDRESSES).any(|n| flow.remote.ip() == address(n))
        {
            flow.remote = stranger;
        }
        Some(Transmit::new(flow, self.pool.copy(shown.as_bytes())))
    }

    delegate!(self.proxy, but offer, poll_transmit);
}
