//! Streams: one direction of a connection, including the operating systems at both ends.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_world::{Buffer, STREAM_WINDOW, Timestamp};

/// Maximum number of bytes in a segment: the TCP payload of an Ethernet frame.
const SEGMENT: u64 = 1448;

/// The settings of the operating systems that carry the streams of a [`Network`](crate::Network).
///
/// The bytes of a stream travel in segments over the [`Link`](crate::Link) between the two nodes. A
/// lost segment is sent again while later segments wait, so a loss causes only delay.
/// Acknowledgements of bytes that were read travel over the link back. A later acknowledgement
/// replaces a lost one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Time to open a connection in addition to one round trip, such as for a TLS handshake.
    pub setup: Duration,
    /// Maximum number of bytes that the operating system accepts from a sender before it sends
    /// them. Further bytes wait at the sender's driver.
    pub buffer: usize,
    /// Maximum number of sent bytes that the receiver has not yet acknowledged as read.
    pub window: usize,
    /// Time after which a lost segment is sent again. The time doubles with each retransmission.
    pub retry: Duration,
    /// Maximum number of consecutive retransmissions before the connection fails.
    pub retries_max: u32,
    /// Time for which a closed connection still sends the bytes handed out on it.
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
    /// Returns the time before the `tries`th retransmission in a row, or `None` to give up.
    pub(crate) fn retry_after(&self, tries: u32) -> Option<Duration> {
        let doublings = tries.saturating_sub(1).min(16);
        (tries <= self.retries_max).then(|| self.retry * (1 << doublings))
    }

    /// Returns the time after which a sender gives up a segment that gets no answer.
    pub(crate) fn gives_up_after(&self) -> Duration {
        (1..=self.retries_max).filter_map(|tries| self.retry_after(tries)).sum()
    }
}

/// A message that the receiver has not read completely, and its offset in the stream.
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
/// The bytes are stored once, as messages. Offsets in the stream describe how far the bytes have
/// come: `handed`, `taken`, `departed`, `arrived`, `read` and `acked`. Each of them is at most as
/// large as the one before it.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// Messages that the receiver has not read completely.
    messages: VecDeque<Message>,
    /// Offset up to which the sender's core has handed out bytes.
    handed: u64,
    /// Offset up to which the sender's operating system has taken the bytes.
    taken: u64,
    /// Offset up to which bytes have been sent.
    departed: u64,
    /// Offset up to which bytes have arrived.
    arrived: u64,
    /// Offset up to which the receiver's driver has read.
    read: u64,
    /// Offset up to which the sender knows that the receiver has read the bytes.
    acked: u64,
    /// Future values of `acked`, each with the time from which it applies.
    acks: VecDeque<(Timestamp, u64)>,
    /// Offset up to which the receiver has tried to acknowledge bytes, including lost
    /// acknowledgements.
    reported: u64,
    /// Number of consecutive lost acknowledgements.
    pub(crate) ack_tries: u32,
    pub(crate) will_repeat_ack: bool,
    /// Value of `handed` when the driver last told the sender that it may send more.
    told: u64,
    /// Arrival time of the last segment sent so far. Later segments do not arrive earlier.
    pub(crate) last_arrival: Timestamp,
    /// Travel time of the last segment sent so far.
    pub(crate) trip: Duration,
    /// Number of times in a row that the next segment was lost.
    pub(crate) tries: u32,
    /// True if an event will tell the sender that it may send more.
    pub(crate) will_tell: bool,
    /// True if an event is scheduled that sends the lost segment again, or sends more when the
    /// window opens.
    pub(crate) is_woken: bool,
    /// Offset at which a fault will break the connection, or `None` if no fault will break it.
    breaks_at: Option<u64>,
    is_broken: bool,
    /// True if the receiver has got the end of the stream.
    pub(crate) has_ended: bool,
    /// True if the receiver has stopped reading for good.
    is_dead: bool,
}

impl Pipe {
    /// Adds a message that the sender's core hands out. Returns the message if the receiver has
    /// stopped reading.
    pub(crate) fn hand(&mut self, bytes: Buffer) -> Option<Buffer> {
        let start = self.handed;
        self.handed += bytes.len() as u64;
        if self.is_dead {
            return Some(bytes);
        }
        self.messages.push_back(Message { start, bytes });
        None
    }

    /// Makes the connection break in the middle of the message that was handed out last.
    pub(crate) fn break_last(&mut self) {
        self.breaks_at = self.messages.back().map(|last| last.start + last.bytes.len() as u64 / 2);
    }

    /// Moves bytes that the core has handed out into the buffer of the operating system, as many as
    /// fit.
    pub(crate) fn take(&mut self, now: Timestamp, settings: &StreamSettings) {
        while let Some(&(at, read)) = self.acks.front()
            && at <= now
        {
            self.acked = read;
            self.acks.pop_front();
        }
        self.taken = self.handed.min(self.departed + settings.buffer as u64).max(self.taken);
    }

    /// Returns the number of bytes of the next segment, or `None` if nothing may be sent now.
    pub(crate) fn segment(&self, settings: &StreamSettings) -> Option<u64> {
        let window = self.acked + settings.window as u64;
        let end = self.taken.min(window).min(self.departed + SEGMENT);
        let end = self.breaks_at.map_or(end, |at| end.min(at));
        (end > self.departed).then(|| end - self.departed)
    }

    /// Sends this many bytes with the travel time `trip`. Returns the time of their arrival.
    pub(crate) fn depart(&mut self, now: Timestamp, bytes: u64, trip: Duration) -> Timestamp {
        self.departed += bytes;
        self.trip = trip;
        self.last_arrival = self.last_arrival.max(now + trip);
        self.last_arrival
    }

    /// Returns whether the core has handed out bytes that are not sent yet.
    pub(crate) fn is_held_up(&self) -> bool {
        self.departed < self.handed
    }

    /// Returns whether the connection breaks now. It returns true only once.
    pub(crate) fn breaks(&mut self) -> bool {
        let breaks = !self.is_broken && self.breaks_at == Some(self.departed);
        self.is_broken |= breaks;
        breaks
    }

    /// Returns the time at which the receive window opens for the sender, or `None` if that is not
    /// known.
    pub(crate) fn opens_at(&self) -> Option<Timestamp> {
        self.acks.front().map(|ack| ack.0)
    }

    /// Returns whether the driver must now tell the sender's core that it may send more. This is so
    /// if the operating system has taken all bytes, and the core has handed out at least half a
    /// window since it was last told.
    pub(crate) fn is_writable_due(&self) -> bool {
        self.taken == self.handed && self.handed - self.told >= STREAM_WINDOW as u64 / 2
    }

    /// Records that the driver has told the sender's core that it may send more.
    pub(crate) fn tell_writable(&mut self) {
        self.told = self.handed;
    }

    pub(crate) fn arrive(&mut self, bytes: u64) {
        self.arrived += bytes;
    }

    /// Returns the number of bytes that can be read.
    pub(crate) fn readable(&self) -> usize {
        (self.arrived - self.read) as usize
    }

    /// Reads up to `most` bytes into `out`. Returns their number.
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

    /// Returns whether the receiver has read bytes since the last call of this function.
    pub(crate) fn is_report_due(&mut self) -> bool {
        std::mem::replace(&mut self.reported, self.read) < self.read
    }

    /// Returns whether the receiver has read bytes that are not acknowledged yet, not even by an
    /// acknowledgement in flight.
    pub(crate) fn lacks_ack(&self) -> bool {
        self.acks.back().map_or(self.acked, |ack| ack.1) < self.read
    }

    /// Sends an acknowledgement of all bytes read so far, which travels for `trip`. No
    /// acknowledgement overtakes another.
    pub(crate) fn acknowledge(&mut self, now: Timestamp, trip: Duration) {
        self.ack_tries = 0;
        let at = self.acks.back().map_or(now + trip, |ack| ack.0.max(now + trip));
        self.acks.push_back((at, self.read));
    }

    /// Removes and returns the oldest message, if the offset of its end is at most `up_to`.
    pub(crate) fn deliver(&mut self, up_to: u64) -> Option<Buffer> {
        let whole = self.messages.front().is_some_and(|message| message.end() <= up_to);
        if whole { self.messages.pop_front().map(|message| message.bytes) } else { None }
    }

    /// Marks up to `most` arrived bytes as read, but keeps their messages. Returns the number of
    /// bytes.
    pub(crate) fn skip(&mut self, most: usize) -> usize {
        let read = self.readable().min(most);
        self.read += read as u64;
        read
    }

    /// Returns the oldest message and the offset of its end, if the message was read completely.
    pub(crate) fn front(&self) -> Option<(&[u8], u64)> {
        let message = self.messages.front().filter(|message| message.end() <= self.read)?;
        Some((&message.bytes, message.end()))
    }

    /// Returns whether the receiver has read a part of the oldest message.
    pub(crate) fn is_within_message(&self) -> bool {
        self.messages.front().is_some_and(|message| message.start < self.read)
    }

    /// Removes and returns the newest message, if the operating system has not sent it completely.
    pub(crate) fn drop_unsent(&mut self) -> Option<Buffer> {
        let unsent = self.messages.back().is_some_and(|message| message.end() > self.departed);
        if unsent { self.messages.pop_back().map(|message| message.bytes) } else { None }
    }

    /// Removes and returns the oldest message, which the receiver will never read.
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

    /// Sends as many bytes as allowed, which arrive at once. Returns their number.
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
    fn the_window_limits_bytes_in_transit_and_opens_when_the_report_of_a_read_arrives() {
        let mut pipe = Pipe::default();
        hand(&mut pipe, 3000);
        hand(&mut pipe, 1500);
        let (start, mut out) = (Timestamp::ZERO, Vec::new());
        assert_eq!(travel(&mut pipe, start), 2000);
        assert!(pipe.is_held_up() && pipe.opens_at().is_none());
        assert_eq!((pipe.read(1500, &mut out), pipe.readable()), (1500, 500));
        assert!(pipe.is_report_due() && !pipe.is_report_due() && pipe.lacks_ack());
        pipe.acknowledge(start, TRIP);
        assert!(!pipe.lacks_ack());
        assert_eq!(pipe.opens_at(), Some(start + TRIP));
        assert_eq!(travel(&mut pipe, start), 0);
        assert_eq!(travel(&mut pipe, start + TRIP), 1500);
        assert_eq!(pipe.read(usize::MAX, &mut out), 2000);
        assert_eq!((out.len(), out[2999], out[3000]), (3500, 3000_usize as u8, 1500_usize as u8));
        // A part of the second message has arrived.
        assert_eq!(pipe.deliver(3500).map(|bytes| bytes.len()), Some(3000));
        assert!(pipe.deliver(3500).is_none() && pipe.is_within_message());
    }

    #[test]
    fn the_sender_is_told_to_send_more_when_half_a_window_is_free() {
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
    fn no_segment_overtakes_another_and_its_length_is_limited() {
        let mut pipe = Pipe::default();
        hand(&mut pipe, 2000);
        pipe.take(Timestamp::ZERO, &StreamSettings { buffer: 2000, ..SETTINGS });
        assert_eq!(pipe.segment(&SETTINGS), Some(SEGMENT));
        let first = pipe.depart(Timestamp::ZERO, SEGMENT, TRIP);
        assert_eq!(pipe.segment(&SETTINGS), Some(2000 - SEGMENT));
        assert_eq!(pipe.depart(Timestamp::ZERO, 2000 - SEGMENT, Duration::ZERO), first);
    }

    #[test]
    fn a_fault_can_break_a_connection_within_a_message() {
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
    fn lost_segments_are_retransmitted_with_backoff_and_a_limit() {
        let ms = |tries| SETTINGS.retry_after(tries).map(|after| after.as_millis());
        assert_eq!([1, 2, 3, 4].map(ms), [Some(200), Some(400), Some(800), None]);
        assert_eq!(SETTINGS.gives_up_after(), Duration::from_millis(1400));
    }
}
