//! Measures the cost of a datagram that the kernel drops, that the program drops, and that the
//! program answers.
//!
//! One thread alternately sends datagrams to itself on the loopback interface and reads them. So
//! the CPU time of sending and of reading can be measured separately. On loopback, sending includes
//! all work of the kernel until a datagram is in a buffer or is dropped. Between two machines the
//! receiver does this work. So only the sum of both times is meaningful.
//!
//! `cargo run --release --example gate -- [--datagrams N]`
//!
//! For each way to drop or answer datagrams, it prints a line with the datagrams sent, received,
//! filtered and lost at full buffers, and the nanoseconds of sending and of reading for each
//! datagram sent.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_io::{BATCH, Group, Inbox, Listen, Listener, Outbox, open};
use tidegate_world::{Batching, Pool, Shedding};

const USAGE: &str = "usage: gate [--datagrams 1000 TO 10000000]";

/// Bytes of a common INVITE and of its 503.
const INVITE: usize = 500;
const ANSWER: usize = 330;

/// Datagrams sent before a measurement.
const WARM_UP: u64 = 20_000;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let datagrams = match (words.next().as_deref(), words.next().map(|word| word.parse())) {
        (None, _) => 200_000,
        (Some("--datagrams"), Some(Ok(datagrams @ 1_000..=10_000_000))) => datagrams,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match compare(datagrams) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A way in which the kernel or the program handles the datagrams.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The program reads each datagram, and drops it by its first bytes.
    Read,
    /// The program reads and answers each datagram.
    Answer,
    /// The program reads no datagram, so the receive buffer overflows.
    Overflow,
    /// The kernel sheds all datagrams.
    All,
    /// The kernel sheds 98.5 % of the datagrams, and the program reads the rest.
    Share,
    /// The kernel sheds the datagrams, because their source is the last of 64 banned sources.
    Banned,
}

const WAYS: [(&str, Way); 6] = [
    ("read", Way::Read),
    ("answer", Way::Answer),
    ("overflow", Way::Overflow),
    ("kernel-all", Way::All),
    ("kernel-share", Way::Share),
    ("kernel-banned", Way::Banned),
];

impl Way {
    fn shedding(self) -> Shedding {
        let share = match self {
            Self::All => 1.0,
            Self::Share => 0.985,
            _ => 0.0,
        };
        let others = (1..Shedding::BANNED_MAX as u8).map(|n| IpAddr::from([192, 0, 2, n]));
        let banned = match self {
            Self::Banned => others.chain([Ipv4Addr::LOCALHOST.into()]).collect(),
            _ => Vec::new(),
        };
        Shedding { shares: [share; 2], banned, ..Shedding::NONE }
    }
}

fn compare(datagrams: u64) -> Result<(), Box<dyn std::error::Error>> {
    println!("way sent received filtered overflow sender_ns reader_ns");
    for (name, way) in WAYS {
        measure(way, WARM_UP)?;
        let told = measure(way, datagrams)?;
        let Told { sent, received, filtered, overflow, sender, reader } = told;
        let each = |time: Duration| time.as_nanos() / u128::from(sent);
        let (sender, reader) = (each(sender), each(reader));
        println!("{name} {sent} {received} {filtered} {overflow} {sender} {reader}");
    }
    Ok(())
}

/// The outcomes of the datagrams, and the CPU time of sending and of reading.
#[derive(Default)]
struct Told {
    sent: u64,
    received: u64,
    filtered: u64,
    overflow: u64,
    sender: Duration,
    reader: Duration,
}

fn measure(way: Way, datagrams: u64) -> io::Result<Told> {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let group = open(&Listen { gate: true, ..Listen::new(local) }).map_err(io::Error::other)?;
    let gate = group.gate().expect("asked for");
    gate.set(&way.shedding())?;
    let peer = UdpSocket::bind(local)?;
    peer.set_nonblocking(true)?;
    let mut text = [b'x'; INVITE];
    text[..7].copy_from_slice(b"INVITE ");
    let mut reader = Reader::new(&group);
    let mut told = Told::default();
    while told.sent < datagrams {
        let began = cpu();
        for number in told.sent..told.sent + BATCH as u64 {
            text[40..48].copy_from_slice(&number.to_be_bytes());
            peer.send_to(&text, group.local())?;
        }
        told.sent += BATCH as u64;
        told.sender += cpu() - began;
        let began = cpu();
        match way {
            Way::Overflow | Way::All | Way::Banned => {}
            Way::Read | Way::Share => told.received += reader.read(false)?,
            Way::Answer => told.received += reader.read(true)?,
        }
        told.reader += cpu() - began;
        // The peer reads the answers, outside the measured time.
        while peer.recv(&mut [0; ANSWER]).is_ok() {}
    }
    // A socket reports its drops with the next datagram for which it has room.
    gate.clear()?;
    told.received += reader.read(false)?;
    peer.send_to(&text, group.local())?;
    reader.read(false)?;
    (told.filtered, told.overflow) = (gate.filtered(), reader.overflow.into());
    Ok(told)
}

/// A reader of the INVITE socket of a group.
struct Reader {
    listener: Listener,
    inbox: Inbox,
    outbox: Outbox,
    pool: Pool,
    overflow: u32,
}

impl Reader {
    fn new(group: &Group) -> Self {
        let pool = Pool::new();
        let (inbox, outbox) = (Inbox::new(&pool), Outbox::new(false, 0));
        Self { listener: group.listener(0), inbox, outbox, pool, overflow: 0 }
    }

    /// Reads all waiting datagrams, checks their first bytes, and answers them if asked. Returns
    /// their number.
    fn read(&mut self, answers: bool) -> io::Result<u64> {
        let Self { listener, inbox, outbox, pool, overflow } = self;
        let socket = listener.invite().expect("a socket of their own");
        let mut count = 0;
        while inbox.receive(socket, BATCH)? > 0 {
            while let Some(datagram) = inbox.take() {
                *overflow = datagram.drops.unwrap_or(*overflow);
                count += 1;
                if datagram.bytes.starts_with(b"INVITE ") && answers {
                    let answer = pool.copy(&[b'x'; ANSWER]);
                    outbox.push(0, None, datagram.remote, answer, Batching::default());
                }
            }
            outbox.flush(|_| listener.ordinary(), Duration::ZERO, |_, _, _, _| {});
        }
        Ok(count)
    }
}

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a CPU clock is never negative")
}
