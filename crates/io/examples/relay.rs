//! A relay that does the least possible work of a SIP proxy over UDP: datagrams in, datagrams out.
//!
//! It parses nothing and keeps no state except one address. So its cost is the minimum for a proxy
//! that does this work. It uses the same batches and the same policy of pauses as the driver, and
//! no timestamps.
//!
//! `cargo run --release --example relay -- --listen ADDR --backend ADDR[,ADDR]`
//!
//! The example sends the datagrams of back ends to the last client, and all others to the first
//! back end. On SIGTERM or SIGINT it prints its datagrams and its CPU time.
#![allow(clippy::disallowed_methods)] // It reads the real clock, as the driver does.

use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{ClockId, clock_nanosleep_relative, set_current_timer_slack};
use signal_hook::consts::{SIGINT, SIGTERM};
use tidegate_io::{BATCH, Clock, Inbox, Limits, Listen, Outbox, Pauses, open};
use tidegate_world::{Batching, Pool};

/// Relays datagrams between one client and a back end
#[derive(Parser)]
struct Arguments {
    /// The address at which the example receives
    #[arg(long)]
    listen: SocketAddr,
    /// The back ends, separated by commas. The first one gets all datagrams of the client
    #[arg(long = "backend", required = true, value_delimiter = ',')]
    backends: Vec<SocketAddr>,
}

fn main() -> Result<(), Box<dyn Error>> {
    relay(&Arguments::parse())
}

fn relay(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    let group = open(&Listen { split: false, stamps: false, ..Listen::new(arguments.listen) })?;
    let listener = group.listener(0);
    let socket = listener.ordinary();
    let mut inbox = Inbox::new(&Pool::new());
    let mut outbox = Outbox::new(true, 0);
    let clock = Clock::start();
    let mut pauses = Pauses::new(Limits::default().coalesce, clock.now());
    let (mut client, mut received, mut sent, mut sleeps) = (None, 0u64, 0u64, 0u64);
    eprintln!("relay: {} to {}", group.local(), arguments.backends[0]);

    while !stop.load(Relaxed) {
        let filled = inbox.receive(socket, BATCH)?;
        received += filled as u64;
        while let Some(datagram) = inbox.take() {
            let to = if arguments.backends.contains(&datagram.remote) {
                client
            } else {
                client = Some(datagram.remote);
                Some(arguments.backends[0])
            };
            if let Some(to) = to {
                outbox.push(0, None, to, datagram.bytes, Batching::default());
            }
        }
        sent += outbox.flush(|_| socket, Duration::from_millis(1), |_, _, _, _| {}).sent;
        pauses.on_received(clock.now(), filled);
        if filled == BATCH {
            continue;
        }
        sleeps += 1;
        match pauses.pause() {
            Some(pause) => {
                let _ = clock_nanosleep_relative(ClockId::Monotonic, &Timespec::try_from(pause)?);
            }
            None => {
                // If a signal arrives just before this call, the call still ends after a second.
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                let _ = poll(
                    &mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)],
                    Some(&second),
                );
            }
        }
    }
    println!("received {received} sent {sent} sleeps {sleeps} cpu_s {:.6}", cpu_seconds()?);
    Ok(())
}

/// Returns the CPU time of the only thread of this process, as the scheduler accounts it.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanos: u64 = text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?;
    Ok(nanos as f64 / 1e9)
}
