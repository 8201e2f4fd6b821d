//! Streams: one direction of a connection, as the two systems at its ends see it.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_world::{Buffer, STREAM_WINDOW, Timestamp};

/// Bytes that travel at a time: what an Ethernet frame holds of a TCP segment.
const SEGMENT: u64 = 1448;

/// The systems under the streams of a [`Network`](crate::Network).
///
/// What travels in a stream travels by the [`Link`](crate::Link) between the two nodes, in
/// segments. One that the link loses is sent again, and those behind it wait: loss is delay here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Time to open a connection beyond the round trip, such as a TLS handshake takes.
    pub setup: Duration,
    /// Bytes that a system takes of a sender before they travel. What goes beyond waits at the
    /// sender's driver.
    pub buffer: usize,
    /// Bytes that travel, or that their receiver has not read.
    pub window: usize,
    /// Time after which something lost is sent again, doubled each time.
    pub retry: Duration,
    /// How often in a row it is sent again, before the connection fails.
    pub retries_max: u32,
    /// Time for which a connection that is closed still sends what was handed out on it.
    pub linger: Duration,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            setup: Duration::ZERO,
            buffer: 64 * 1024,
            window: 64 * 1024,
            retry: Duration::from_millis(200),
            retries_max: 7,
            linger: Duration::from_secs(5),
        }
    }
}

impl StreamSettings {
    /// Returns how long to wait before what was lost for the `tries`th time in a row is sent
    /// again; `None` to send it no more.
    pub(crate) fn retry_after(&self, tries: u32) -> Option<Duration> {
        let doublings = tries.saturating_sub(1).min(16);
        (tries <= self.retries_max).then(|| self.retry * (1 << doublings))
    }

    /// Returns how long it takes to give up what gets no answer.
    pub(crate) fn gives_up_after(&self) -> Duration {
        (1..=self.retries_max).filter_map(|tries| self.retry_after(tries)).sum()
    }
}

/// A message on its way, and where it begins in the stream.
#[derive(Debug)]
struct Message {
    start: u64,
    bytes: Buffer,
}

impl Message {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// One direction of a connection.
///
/// The bytes are kept once, as the messages that they are of; how far they have come are places in
/// the stream, each no further than the one before it.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// Messages of which the receiver has not been given the last byte.
    messages: VecDeque<Message>,
    /// What the sender's core has handed out.
    handed: u64,
    /// What its system has taken of that.
    taken: u64,
    /// What was sent off.
    departed: u64,
    /// What has arrived.
    arrived: u64,
    /// What the receiver's driver has read.
    read: u64,
    /// What the sender knows to be read; and what it will know, and when.
    acked: u64,
    acks: VecDeque<(Timestamp, u64)>,
    /// What was handed out when the sender last heard that it may send more.
    told: u64,
    /// When the last segment arrives: none overtakes it.
    pub(crate) last_arrival: Timestamp,
    /// How long the last segment takes, and so the news that it was read.
    pub(crate) trip: Duration,
    /// How often in a row the next segment was lost.
    pub(crate) tries: u32,
    /// An event will tell the sender that it may send more.
    pub(crate) will_tell: bool,
    /// An event will send it again, or more once the window opens.
    pub(crate) is_woken: bool,
    /// The connection breaks when this has departed, and whether it has.
    breaks_at: Option<u64>,
    is_broken: bool,
    /// The end of the stream has come.
    pub(crate) has_ended: bool,
    /// Nobody will read any more.
    is_dead: bool,
}

impl Pipe {
    /// Puts a message behind those before it. Returns it if nobody will read it.
    pub(crate) fn hand(&mut self, bytes: Buffer) -> Option<Buffer> {
        let start = self.handed;
        self.handed += bytes.len() as u64;
        if self.is_dead {
            return Some(bytes);
        }
        self.messages.push_back(Message { start, bytes });
        None
    }

    /// Breaks the connection in the middle of what was handed out last.
    pub(crate) fn break_last(&mut self) {
        self.breaks_at = self.messages.back().map(|last| last.start + last.bytes.len() as u64 / 2);
    }

    /// Moves into the system's buffer what it has room for.
    pub(crate) fn take(&mut self, now: Timestamp, settings: &StreamSettings) {
        while let Some(&(at, read)) = self.acks.front()
            && at <= now
        {
            self.acked = read;
            self.acks.pop_front();
        }
        self.taken = self.handed.min(self.departed + settings.buffer as u64).max(self.taken);
    }

    /// Returns the bytes of the next segment that may be sent off.
    pub(crate) fn segment(&self, settings: &StreamSettings) -> Option<u64> {
        let window = self.acked + settings.window as u64;
        let end = self.taken.min(window).min(self.departed + SEGMENT);
        let end = self.breaks_at.map_or(end, |at| end.min(at));
        (end > self.departed).then(|| end - self.departed)
    }

    /// Sends off so many bytes, which take `trip`. Returns when they arrive.
    pub(crate) fn depart(&mut self, now: Timestamp, bytes: u64, trip: Duration) -> Timestamp {
        self.departed += bytes;
        self.trip = trip;
        self.last_arrival = self.last_arrival.max(now + trip);
        self.last_arrival
    }

    /// Returns whether something is not sent off.
    pub(crate) fn is_held_up(&self) -> bool {
        self.departed < self.handed
    }

    /// Returns whether the connection breaks now: once.
    pub(crate) fn breaks(&mut self) -> bool {
        let breaks = !self.is_broken && self.breaks_at == Some(self.departed);
        self.is_broken |= breaks;
        breaks
    }

    /// Returns when the sender's window opens, if that is known.
    pub(crate) fn opens_at(&self) -> Option<Timestamp> {
        self.acks.front().map(|ack| ack.0)
    }

    /// Returns whether the sender is to be told that it may send more.
    pub(crate) fn is_writable_due(&self) -> bool {
        self.taken == self.handed && self.handed - self.told >= STREAM_WINDOW as u64 / 2
    }

    /// Notes that the sender was told.
    pub(crate) fn tell_writable(&mut self) {
        self.told = self.handed;
    }

    /// Notes that so many bytes have arrived.
    pub(crate) fn arrive(&mut self, bytes: u64) {
        self.arrived += bytes;
    }

    /// Returns how many bytes can be read.
    pub(crate) fn readable(&self) -> usize {
        (self.arrived - self.read) as usize
    }

    /// Reads up to `most` bytes into `out`. Returns how many.
    pub(crate) fn read(&mut self, most: usize, out: &mut Vec<u8>) -> usize {
        let end = self.arrived.min(self.read.saturating_add(most as u64));
        let begin = self.read;
        for message in &self.messages {
            let from = self.read.max(message.start);
            let to = end.min(message.end());
            if from < to {
                let [from, to] = [from, to].map(|at| (at - message.start) as usize);
                out.extend_from_slice(&message.bytes[from..to]);
                self.read = message.start + to as u64;
            }
            if self.read == end {
                break;
            }
        }
        (self.read - begin) as usize
    }

    /// Notes that the sender will know what was read when the news has come back.
    pub(crate) fn acknowledge(&mut self, now: Timestamp) {
        if self.acks.back().map_or(self.acked, |ack| ack.1) < self.read {
            self.acks.push_back((now + self.trip, self.read));
        }
    }

    /// Takes the next message of which all was read, up to this place in the stream.
    pub(crate) fn deliver(&mut self, up_to: u64) -> Option<Buffer> {
        let whole = self.messages.front().is_some_and(|message| message.end() <= up_to);
        if whole { self.messages.pop_front().map(|message| message.bytes) } else { None }
    }

    /// Reads up to `most` bytes, which stay with the messages. Returns how many.
    pub(crate) fn skip(&mut self, most: usize) -> usize {
        let read = self.readable().min(most);
        self.read += read as u64;
        read
    }

    /// Returns the next message, by the sender's bounds, and where it ends, if all of it was read.
    pub(crate) fn front(&self) -> Option<(&[u8], u64)> {
        let message = self.messages.front().filter(|message| message.end() <= self.read)?;
        Some((&message.bytes, message.end()))
    }

    /// Returns whether a part of a message was read.
    pub(crate) fn is_within_message(&self) -> bool {
        self.messages.front().is_some_and(|message| message.start < self.read)
    }

    /// Takes a message that is not sent off as a whole.
    pub(crate) fn drop_unsent(&mut self) -> Option<Buffer> {
        let unsent = self.messages.back().is_some_and(|message| message.end() > self.departed);
        if unsent { self.messages.pop_back().map(|message| message.bytes) } else { None }
    }

    /// Takes a message that nobody will read.
    pub(crate) fn drop_unread(&mut self) -> Option<Buffer> {
        self.is_dead = true;
        self.messages.pop_front().map(|message| message.bytes)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::Pool;

    use super::*;

    const SETTINGS: StreamSettings = StreamSettings {
        setup: Duration::ZERO,
        buffer: 1000,
        window: 2000,
        retry: Duration::from_millis(200),
        retries_max: 3,
        linger: Duration::ZERO,
    };
    const TRIP: Duration = Duration::from_millis(10);

    fn hand(pipe: &mut Pipe, bytes: usize) {
        let bytes = Pool::new().copy(&vec![bytes as u8; bytes]);
        assert!(pipe.hand(bytes).is_none());
    }

    /// Sends off what may be, which arrives at once. Returns how much.
    fn travel(pipe: &mut Pipe, now: Timestamp) -> u64 {
        let mut sum = 0;
        loop {
            pipe.take(now, &SETTINGS);
            let Some(bytes) = pipe.segment(&SETTINGS) else { return sum };
            pipe.depart(now, bytes, TRIP);
            pipe.arrive(bytes);
            sum += bytes;
        }
    }

    #[test]
    fn no_more_travels_than_the_window_and_it_opens_when_the_news_of_reading_is_back() {
        let mut pipe = Pipe::default();
        hand(&mut pipe, 3000);
        hand(&mut pipe, 1500);
        let (start, mut out) = (Timestamp::ZERO, Vec::new());
        assert_eq!(travel(&mut pipe, start), 2000);
        assert!(pipe.is_held_up() && pipe.opens_at().is_none());
        assert_eq!((pipe.read(1500, &mut out), pipe.readable()), (1500, 500));
        pipe.acknowledge(start);
        assert_eq!(pipe.opens_at(), Some(start + TRIP));
        assert_eq!(travel(&mut pipe, start), 0);
        assert_eq!(travel(&mut pipe, start + TRIP), 1500);
        assert_eq!(pipe.read(usize::MAX, &mut out), 2000);
        assert_eq!((out.len(), out[2999], out[3000]), (3500, 3000_usize as u8, 1500_usize as u8));
        // Of the second message a part is there.
        assert_eq!(pipe.deliver(3500).map(|bytes| bytes.len()), Some(3000));
        assert!(pipe.deliver(3500).is_none() && pipe.is_within_message());
    }

    #[test]
    fn the_sender_hears_that_it_may_send_more_once_half_a_window_is_taken() {
        let mut pipe = Pipe::default();
        let settings = StreamSettings::default();
        hand(&mut pipe, STREAM_WINDOW / 2 - 1);
        pipe.take(Timestamp::ZERO, &settings);
        assert!(!pipe.is_writable_due());
        hand(&mut pipe, STREAM_WINDOW / 2 + 2);
        pipe.take(Timestamp::ZERO, &settings);
        assert!(!pipe.is_writable_due(), "the system has not taken all");
        pipe.depart(Timestamp::ZERO, 1, TRIP);
        pipe.take(Timestamp::ZERO, &settings);
        assert!(pipe.is_writable_due());
        pipe.tell_writable();
        assert!(!pipe.is_writable_due());
    }

    #[test]
    fn no_segment_overtakes_another_and_each_has_a_bound() {
        let mut pipe = Pipe::default();
        hand(&mut pipe, 2000);
        pipe.take(Timestamp::ZERO, &StreamSettings { buffer: 2000, ..SETTINGS });
        assert_eq!(pipe.segment(&SETTINGS), Some(SEGMENT));
        let first = pipe.depart(Timestamp::ZERO, SEGMENT, TRIP);
        assert_eq!(pipe.segment(&SETTINGS), Some(2000 - SEGMENT));
        assert_eq!(pipe.depart(Timestamp::ZERO, 2000 - SEGMENT, Duration::ZERO), first);
    }

    #[test]
    fn what_breaks_a_connection_breaks_it_within_a_message() {
        let mut pipe = Pipe::default();
        hand(&mut pipe, 100);
        travel(&mut pipe, Timestamp::ZERO);
        hand(&mut pipe, 200);
        pipe.break_last();
        assert_eq!(travel(&mut pipe, Timestamp::ZERO), 100);
        assert!(pipe.breaks() && !pipe.breaks() && pipe.is_held_up());
        assert_eq!(travel(&mut pipe, Timestamp::ZERO), 0);
        assert_eq!(pipe.drop_unsent().map(|bytes| bytes.len()), Some(200));
        assert!(pipe.drop_unsent().is_none(), "the first has set out");
        assert_eq!(pipe.drop_unread().map(|bytes| bytes.len()), Some(100));
        let late = Pool::new().copy(b"late");
        assert!(pipe.hand(late).is_some(), "nobody reads it");
    }

    #[test]
    fn what_is_lost_is_sent_again_later_each_time_and_not_for_ever() {
        let ms = |tries| SETTINGS.retry_after(tries).map(|after| after.as_millis());
        assert_eq!([1, 2, 3, 4].map(ms), [Some(200), Some(400), Some(800), None]);
        assert_eq!(SETTINGS.gives_up_after(), Duration::from_millis(1400));
    }
}
