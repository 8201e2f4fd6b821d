//! A server that does the least possible work to reject a call over UDP: an INVITE in, a 503 out,
//! an ACK in.
//!
//! It is a core under the same driver as the proxy, but it parses nothing. It answers everything
//! that begins with `INVITE` by one fixed text of the size of a 503, and ignores the rest. So its
//! CPU time is the cost of the three datagrams of a rejection without any SIP processing. No proxy
//! can reject calls at a lower cost. Its answers belong to no transaction, so the load generator
//! must acknowledge every response.
//!
//! `cargo run --release --example reject -- --listen ADDR`
//!
//! On SIGTERM or SIGINT it prints its datagrams and its CPU time.

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidegate_io::{Clock, Counters, Drive, Handoffs, Limits, Listen, Shard, Stop, open};
use tidegate_world::{Core, Pool, Received, Timestamp, Transmit};

/// A response as long as that of the proxy to the INVITE of a common user agent.
const ANSWER: &[u8; 330] = b"SIP/2.0 503 Service Unavailable\r\n\
    Via: SIP/2.0/UDP 127.0.0.1:5061;branch=z9hG4bK-12345-67890-0;received=127.0.0.1\r\n\
    From: alice <sip:alice@127.0.0.1:5061>;tag=12345SIPpTag006789\r\n\
    To: service <sip:service@127.0.0.1:5060>;tag=tg0123456789A\r\n\
    Call-ID: 67890-12345@127.0.0.1\r\n\
    CSeq: 1 INVITE\r\n\
    Server: Tidegate/0.1.0\r\n\
    Content-Length: 0\r\n\
    \r\n";

/// Rejects every INVITE with one fixed text
#[derive(Parser)]
struct Arguments {
    /// The address at which the example receives
    #[arg(long)]
    listen: SocketAddr,
}

fn main() -> Result<(), Box<dyn Error>> {
    reject(&Arguments::parse())
}

fn reject(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let stop = Stop::new();
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let asked = stop.clone();
    // This thread ends with the process.
    thread::spawn(move || signals.forever().for_each(|_| asked.request()));
    let group = open(&Listen::new(arguments.listen))?;
    let counters = Arc::new(Counters::default());
    let pool = Pool::new();
    let mut drive = Drive::new(Shard {
        clock: Clock::start(),
        limits: Limits { gso: false, ..Limits::default() },
        listeners: vec![group.listener(0)],
        handoffs: Handoffs::alone()?,
        counters: Arc::clone(&counters),
        stop,
        pool: pool.clone(),
    })?;
    eprintln!("reject: {}", group.local());
    drive.run(&mut Rejectr { pool, transmits: VecDeque::new() })?;
    println!(
        "received {} sent {} sleeps {} cpu_s {:.6}",
        counters.received(),
        counters.sent.get(),
        counters.wakes.get(),
        cpu_seconds()?
    );
    Ok(())
}

/// A core that answers every INVITE when it is offered, as a proxy does under overload.
struct Rejectr {
    pool: Pool,
    transmits: VecDeque<Transmit>,
}

impl Core for Rejectr {
    fn offer(&mut self, _now: Timestamp, received: Received) {
        if received.bytes.starts_with(b"INVITE ") {
            let bytes = self.pool.copy(ANSWER);
            self.transmits.push_back(Transmit::new(received.flow, bytes));
        }
    }

    fn handle_timeout(&mut self, _now: Timestamp) {}

    fn on_drain(&mut self, _now: Timestamp) {}

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }

    fn is_drained(&self) -> bool {
        true
    }
}

/// Returns the CPU time of this thread, which drives the core, as the scheduler accounts it.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanos: u64 = text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?;
    Ok(nanos as f64 / 1e9)
}
