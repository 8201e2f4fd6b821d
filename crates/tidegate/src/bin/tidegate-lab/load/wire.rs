//! Messages between a leader and a follower: one JSON value on each line of a TCP connection.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use serde::Serialize;
use tidegate_io::Clock;

/// Maximum number of received messages that wait in this process. Further messages wait in the
/// kernel.
const WAITING_MAX: usize = 16;

/// Maximum time for which a send waits until the peer accepts further bytes of a message.
const WRITE: Duration = Duration::from_secs(5);

/// Maximum time for which a rejected peer may continue to send before the connection is closed.
const LINGER: Duration = Duration::from_millis(200);

/// Maximum number of bytes of a rejected peer that are read and discarded.
const DISCARDED_MAX: usize = 64 << 10;

/// A message that a peer may send.
pub trait Message: Sized + Send + 'static {
    /// Maximum length of a message with its newline, in bytes.
    const LENGTH_MAX: usize;

    /// Reads a message, or returns the reason why it is invalid.
    fn read(line: &[u8]) -> Result<Self, String>;
}

/// The reason why a connection cannot be used any longer.
#[derive(Debug)]
pub enum Broken {
    /// The peer closed the connection.
    Closed,
    /// A message was longer than this number of bytes.
    TooLong(usize),
    /// A message was invalid.
    Invalid(String),
    /// The connection failed.
    Failed(io::Error),
    /// No message arrived within this time.
    Silent(Duration),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer closed the connection"),
            Self::TooLong(max) => write!(f, "the peer sent a message of more than {max} bytes"),
            Self::Invalid(why) => write!(f, "the peer sent an invalid message: {why}"),
            Self::Failed(error) => write!(f, "the connection failed: {error}"),
            Self::Silent(time) => {
                write!(f, "the peer sent no message for {} s", time.as_secs_f64())
            }
        }
    }
}

/// One end of a connection, which receives messages of type `M`. Dropping it closes the connection.
pub struct Wire<M> {
    stream: TcpStream,
    incoming: Receiver<Result<M, Broken>>,
}

impl<M: Message> Wire<M> {
    /// Starts to read messages from `stream`.
    pub fn open(stream: TcpStream) -> io::Result<Self> {
        // A short message must be sent at once, without waiting for the acknowledgement of an
        // earlier one.
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE))?;
        let (out, incoming) = bounded(WAITING_MAX);
        let reader = Reader { stream: BufReader::new(stream.try_clone()?), out };
        thread::Builder::new().name("wire".to_owned()).spawn(move || reader.run())?;
        Ok(Self { stream, incoming })
    }

    /// Sends a message.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        send(&self.stream, message)
    }

    /// Returns a handle by which another thread can send messages.
    pub fn sender(&self) -> io::Result<WireSender> {
        self.stream.try_clone().map(WireSender)
    }

    /// Returns the next message, or an error if none arrives within the time `wait`.
    pub fn receive(&self, wait: Duration) -> Result<M, Broken> {
        match self.incoming.recv_timeout(wait) {
            Ok(received) => received,
            Err(RecvTimeoutError::Timeout) => Err(Broken::Silent(wait)),
            Err(RecvTimeoutError::Disconnected) => Err(Broken::Closed),
        }
    }

    /// Returns a message that has arrived, or `None` if there is none.
    pub fn poll(&self) -> Option<Result<M, Broken>> {
        self.incoming.try_recv().ok()
    }

    /// Returns the channel of received messages, for other threads and for `select!`. After an
    /// error the channel is disconnected.
    pub fn incoming(&self) -> &Receiver<Result<M, Broken>> {
        &self.incoming
    }

    /// Sends a last message, and closes the connection so that the peer can still read it. Waits
    /// for the peer for at most [`WRITE`] and [`LINGER`] together.
    pub fn close_with(self, message: &impl Serialize) {
        // If unread bytes were left, the kernel would reset the connection, and the peer might not
        // get the message.
        let _ = self.send(message);
        let _ = self.stream.shutdown(Shutdown::Write);
        let clock = Clock::start();
        let deadline = clock.now() + LINGER;
        let (mut unread, mut discarded) = ([0; 4096], 0);
        while discarded <= DISCARDED_MAX {
            let left = deadline.since(clock.now());
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                return;
            }
            match (&self.stream).read(&mut unread) {
                Ok(length @ 1..) => discarded += length,
                Ok(0) | Err(_) => return,
            }
        }
    }
}

impl<M> Drop for Wire<M> {
    fn drop(&mut self) {
        // Shutting down both directions also ends the thread that reads.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A handle that sends messages on a connection of another thread.
pub struct WireSender(TcpStream);

impl WireSender {
    /// Sends a message.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        send(&self.0, message)
    }
}

/// Sends a message on a connection.
pub fn send(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// A reader of messages. It ends when a message is invalid, when the peer closes the connection, or
/// when the receiver of the messages was dropped.
struct Reader<M> {
    stream: BufReader<TcpStream>,
    out: Sender<Result<M, Broken>>,
}

impl<M: Message> Reader<M> {
    fn run(mut self) {
        loop {
            let next = next(&mut self.stream);
            let is_last = next.is_err();
            if self.out.send(next).is_err() || is_last {
                return;
            }
        }
    }
}

fn next<M: Message>(stream: &mut impl BufRead) -> Result<M, Broken> {
    let mut line = Vec::new();
    let mut limited = stream.take(M::LENGTH_MAX as u64);
    limited.read_until(b'\n', &mut line).map_err(Broken::Failed)?;
    match line.last() {
        Some(b'\n') => M::read(&line).map_err(Broken::Invalid),
        _ if line.len() == M::LENGTH_MAX => Err(Broken::TooLong(M::LENGTH_MAX)),
        _ => Err(Broken::Closed),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A message that consists of a number.
    #[derive(Debug, PartialEq)]
    struct Number(u32);

    impl Message for Number {
        const LENGTH_MAX: usize = 8;

        fn read(line: &[u8]) -> Result<Self, String> {
            serde_json::from_slice(line).map(Self).map_err(|error| error.to_string())
        }
    }

    /// Returns the two ends of a connection. The first one is a plain stream.
    fn pair() -> (TcpStream, Wire<Number>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (peer, Wire::open(listener.accept().unwrap().0).unwrap())
    }

    #[test]
    fn messages_arrive_in_order_until_the_peer_closes_the_connection() {
        let (mut peer, wire) = pair();
        peer.write_all(b"1\n22\n333").unwrap();
        assert_eq!(wire.receive(PATIENCE).unwrap(), Number(1));
        assert_eq!(wire.receive(PATIENCE).unwrap(), Number(22));
        assert!(matches!(wire.receive(Duration::from_millis(20)), Err(Broken::Silent(_))));
        peer.write_all(b"3\n4").unwrap();
        assert_eq!(wire.receive(PATIENCE).unwrap(), Number(3333));
        drop(peer);
        for _ in 0..2 {
            assert!(matches!(wire.receive(PATIENCE), Err(Broken::Closed)));
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_not_read_to_its_end() {
        let (mut peer, wire) = pair();
        peer.write_all(b"1234567\n12345678").unwrap();
        assert_eq!(wire.receive(PATIENCE).unwrap(), Number(1_234_567));
        let error = wire.receive(PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), "the peer sent a message of more than 8 bytes");
    }

    #[test]
    fn a_rejected_peer_gets_the_reason() {
        let (mut peer, wire) = pair();
        peer.write_all(b"OPTIONS\nsip:x\n").unwrap();
        let error = wire.receive(PATIENCE).unwrap_err();
        assert!(matches!(error, Broken::Invalid(_)), "{error}");
        wire.close_with(&"no");
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "\"no\"\n");
    }

    #[test]
    fn a_rejected_peer_that_continues_to_send_is_disconnected() {
        let (mut peer, wire) = pair();
        let was_disconnected = thread::spawn(move || {
            (0..2000).any(|_| {
                thread::park_timeout(Duration::from_millis(10));
                peer.write_all(b"x").is_err()
            })
        });
        wire.close_with(&"no");
        assert!(was_disconnected.join().unwrap());
    }

    #[test]
    fn a_dropped_end_closes_the_connection() {
        let (mut peer, wire) = pair();
        let sender = wire.sender().unwrap();
        sender.send(&5).unwrap();
        drop(wire);
        let mut rest = String::new();
        peer.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "5\n");
    }
}
