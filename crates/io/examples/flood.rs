//! Offers calls to a server that rejects them: an INVITE at even intervals, and an ACK to each 503.
//!
//! The example keeps no state of calls. It builds the ACK from the response alone. So it can load a
//! server that rejects calls, and also the example `reject`, which always sends the same text. It
//! does not retransmit an INVITE without a response.
//!
//! `cargo run --release --example flood -- --target ADDR --rate N --seconds N [--bind IP]
//! [--uri URI]`
//!
//! At the end it prints the numbers of its messages and of its losses, its delay, and its CPU time.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use tidegate_io::{Clock, Counters, Drive, Handoffs, Limits, Listen, Shard, Stop, open};
use tidegate_world::{Core, Flow, Pool, Received, Timestamp, Transmit};

/// Maximum number of INVITEs sent in one turn. They fit into one batch.
const BURST: usize = 64;

/// The time by which an INVITE may be late, so that one wake of the thread sends several INVITEs.
const SLACK: Duration = Duration::from_micros(200);

/// Time to wait for the last responses at the end.
const GRACE: Duration = Duration::from_millis(200);

/// Number of digits of a call's number in the branch and in the Call-ID.
const DIGITS: usize = 16;

const SESSION: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    m=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";

/// Offers calls to a server that rejects them, and acknowledges the rejections
#[derive(Parser)]
struct Arguments {
    /// The server
    #[arg(long)]
    target: SocketAddr,
    /// Calls a second
    #[arg(long = "rate", value_parser = parse_positive)]
    rate_cps: f64,
    /// Duration of the load
    #[arg(long, value_parser = parse_positive)]
    seconds: f64,
    /// The address from which the example sends
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// The URI that the example calls. Without this option it calls a user at the target
    #[arg(long)]
    uri: Option<String>,
}

fn parse_positive(text: &str) -> Result<f64, &'static str> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or("not a number above 0")
}

fn main() -> Result<(), Box<dyn Error>> {
    flood(&Arguments::parse())
}

fn flood(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let stop = Stop::new();
    let local = SocketAddr::new(arguments.bind, 0);
    let group = open(&Listen { split: false, ..Listen::new(local) })?;
    let counters = Arc::new(Counters::default());
    let pool = Pool::new();
    let clock = Clock::start();
    let mut drive = Drive::new(Shard {
        clock,
        limits: Limits { coalesce: SLACK, gso: false, ..Limits::default() },
        listeners: vec![group.listener(0)],
        handoffs: Handoffs::alone()?,
        counters: Arc::clone(&counters),
        stop: stop.clone(),
        pool: pool.clone(),
    })?;
    let flow = Flow::udp(group.local(), arguments.target);
    let mut flooder = Flooder::new(arguments, flow, clock.now(), stop, pool);
    drive.run(&mut flooder)?;
    println!(
        "invites {} rejected {} others {} behind_s {:.3} lasted_s {:.3} socket_drops {} unsent {} \
         cpu_s {:.6}",
        flooder.sent,
        flooder.rejected,
        flooder.others,
        flooder.behind.as_secs_f64(),
        flooder.lasted.as_secs_f64(),
        counters.overflow.get(),
        counters.send_dropped(),
        cpu_seconds(),
    );
    Ok(())
}

struct Flooder {
    flow: Flow,
    start: Timestamp,
    interval: Duration,
    calls: u64,
    /// The INVITE, with placeholders for the number of the call.
    invite: Vec<u8>,
    gaps: Vec<usize>,
    ack: String,
    sent: u64,
    rejected: u64,
    others: u64,
    /// The time by which the last INVITE was late.
    behind: Duration,
    /// The time from the start to the last INVITE.
    lasted: Duration,
    stop: Option<Stop>,
    pool: Pool,
    out: VecDeque<Transmit>,
}

impl Flooder {
    fn new(arguments: &Arguments, flow: Flow, start: Timestamp, stop: Stop, pool: Pool) -> Self {
        let (local, target) = (flow.local, flow.remote);
        let uri = arguments.uri.clone().unwrap_or_else(|| format!("sip:service@{target}"));
        let gap = "#".repeat(DIGITS);
        let invite = format!(
            "INVITE {uri} SIP/2.0\r\n\
             Via: SIP/2.0/UDP {local};rport;branch=z9hG4bK{gap}\r\n\
             Max-Forwards: 70\r\n\
             From: <sip:caller@{local}>;tag=flood\r\n\
             To: <{uri}>\r\n\
             Call-ID: {gap}\r\n\
             CSeq: 1 INVITE\r\n\
             Contact: <sip:caller@{local}>\r\n\
             Content-Type: application/sdp\r\n\
             Content-Length: {}\r\n\r\n{SESSION}",
            SESSION.len()
        );
        Self {
            gaps: invite.match_indices(&gap).map(|(at, _)| at).collect(),
            invite: invite.into_bytes(),
            ack: format!("ACK {uri} SIP/2.0\r\n"),
            flow,
            start,
            interval: Duration::from_secs_f64(1.0 / arguments.rate_cps),
            calls: (arguments.rate_cps * arguments.seconds) as u64,
            sent: 0,
            rejected: 0,
            others: 0,
            behind: Duration::ZERO,
            lasted: Duration::ZERO,
            stop: Some(stop),
            pool,
            out: VecDeque::new(),
        }
    }

    /// Returns the start time of the call with this number.
    fn due(&self, number: u64) -> Timestamp {
        self.start + self.interval.mul_f64(number as f64)
    }

    fn invite(&mut self) {
        let number = format!("{:0DIGITS$x}", self.sent);
        for &at in &self.gaps {
            self.invite[at..at + DIGITS].copy_from_slice(number.as_bytes());
        }
        self.sent += 1;
        self.out.push_back(Transmit::new(self.flow, self.pool.copy(&self.invite)));
    }

    /// Sends the ACK of a response. By RFC 3261 §17.1.1.3, its Via, From and Call-ID are those of
    /// the INVITE, which the response repeats, and its To is that of the response.
    fn acknowledge(&mut self, response: &str) {
        let mut ack = self.ack.clone();
        let copied = ["Via:", "From:", "To:", "Call-ID:"];
        for line in response.split("\r\n").filter(|l| copied.iter().any(|c| l.starts_with(c))) {
            let _ = write!(ack, "{line}\r\n");
        }
        ack.push_str("CSeq: 1 ACK\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n");
        let bytes = self.pool.copy(ack.as_bytes());
        self.out.push_back(Transmit::new(self.flow, bytes));
    }
}

impl Core for Flooder {
    fn offer(&mut self, _now: Timestamp, received: Received) {
        match std::str::from_utf8(&received.bytes) {
            Ok(text) if text.starts_with("SIP/2.0 503") => {
                self.rejected += 1;
                self.acknowledge(text);
            }
            _ => self.others += 1,
        }
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        for _ in 0..BURST {
            if self.sent == self.calls || self.due(self.sent) > now {
                break;
            }
            self.behind = now.since(self.due(self.sent));
            self.lasted = now.since(self.start);
            self.invite();
        }
        if now >= self.due(self.calls) + GRACE
            && let Some(stop) = self.stop.take()
        {
            stop.request();
        }
    }

    fn on_drain(&mut self, _now: Timestamp) {}

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.stop.as_ref()?;
        let wait = if self.sent == self.calls { GRACE } else { SLACK };
        Some(self.due(self.sent) + wait)
    }

    fn is_drained(&self) -> bool {
        true
    }
}

/// Returns the CPU time of this process, user and system.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
