//! A proxy whose packets are tampered with on their way out.

use std::collections::VecDeque;

use tidegate_server::assembly::Server;
use tidegate_world::{Core, Crossing, Failure, Load, Pool, Received, Timestamp, Transmit, Work};

/// What is sent in place of a packet, which is the proxy's first, second, … by its number.
pub type Meddling = fn(u32, String) -> Vec<String>;

/// A proxy behind somebody who meddles.
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
    fn offer(&mut self, now: Timestamp, received: Received) {
        self.proxy.offer(now, received);
    }
    fn serve(&mut self, now: Timestamp) -> bool {
        self.proxy.serve(now)
    }
    fn handle_timeout(&mut self, now: Timestamp) {
        self.proxy.handle_timeout(now);
    }
    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.proxy.on_failed(now, failure);
    }
    fn on_load(&mut self, now: Timestamp, load: Load) {
        self.proxy.on_load(now, load);
    }
    fn on_drain(&mut self, now: Timestamp) {
        self.proxy.on_drain(now);
    }
    fn poll_transmit(&mut self) -> Option<Transmit> {
        while self.out.is_empty() {
            let Transmit { path, bytes } = self.proxy.poll_transmit()?;
            self.count += 1;
            let text = String::from_utf8(bytes.to_vec()).expect("agents write text");
            let texts = (self.meddling)(self.count, text);
            let packets = texts.iter().map(|text| self.pool.copy(text.as_bytes()));
            self.out.extend(packets.map(|bytes| Transmit { path, bytes }));
        }
        self.out.pop_front()
    }
    fn poll_crossing(&mut self) -> Option<Crossing> {
        self.proxy.poll_crossing()
    }
    fn last_work(&self) -> Work {
        self.proxy.last_work()
    }
    fn poll_timeout(&self) -> Option<Timestamp> {
        self.proxy.poll_timeout()
    }
    fn is_drained(&self) -> bool {
        self.proxy.is_drained()
    }
}
