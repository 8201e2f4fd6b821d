//! A proxy whose packets are tampered with on their way out.

pub mod disguise;

use std::collections::VecDeque;

use tidegate_server::assembly::Server;
use tidegate_world::{Core, Pool, Transmit, delegate};

/// A function that returns the packets to send in place of one packet of the proxy. Its arguments
/// are the number of the packet, from 1, and the text of the packet.
pub type Meddling = fn(u32, String) -> Vec<String>;

/// A proxy whose packets are changed.
pub struct Meddler {
    proxy: Server,
    meddling: Meddling,
    count: u32,
    out: VecDeque<Transmit>,
    pool: Pool,
}

impl Meddler {
    pub fn new(proxy: Server, meddling: Meddling) -> Self {
        Self { proxy, meddling, count: 0, out: VecDeque::new(), pool: Pool::new() }
    }
}

impl Core for Meddler {
    fn poll_transmit(&mut self) -> Option<Transmit> {
        while self.out.is_empty() {
            let Transmit { flow, bytes, .. } = self.proxy.poll_transmit()?;
            self.count += 1;
            let text = String::from_utf8(bytes.to_vec()).expect("agents write text");
            let texts = (self.meddling)(self.count, text);
            let packets = texts.iter().map(|text| self.pool.copy(text.as_bytes()));
            self.out.extend(packets.map(|bytes| Transmit::new(flow, bytes)));
        }
        self.out.pop_front()
    }

    delegate!(self.proxy, but poll_transmit);
}
