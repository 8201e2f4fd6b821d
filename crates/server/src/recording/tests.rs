use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::bounded;
use proptest::prelude::*;
use tempfile::TempDir;
use tidegate_proxy::{Base, EgressRoute, Secret, TokenKey, TokenKeys};
use tidegate_world::{Core, Entry, Flow, Input, Log, Pool, Received, Seed, Timestamp, Transmit};

use super::block::{HEADER, Header};
use super::journal::Journal;
use super::tally::Tally;
use super::writer::Recorder;
use super::*;
use crate::assembly::Environment;

/// A core that answers each datagram with a number that depends on all inputs so far.
struct Answering {
    salt: u64,
    pool: Pool,
    out: VecDeque<Transmit>,
}

impl Answering {
    fn new(salt: u64) -> Self {
        Self { salt, pool: Pool::new(), out: VecDeque::new() }
    }
}

impl Core for Answering {
    fn offer(&mut self, _: Timestamp, received: Received) {
        self.salt += received.bytes.len() as u64;
        let bytes = self.pool.copy(&self.salt.to_be_bytes());
        self.out.push_back(Transmit::new(received.flow, bytes));
    }
    fn handle_timeout(&mut self, now: Timestamp) {
        self.salt ^= now.as_nanos();
    }
    fn on_drain(&mut self, _: Timestamp) {}
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }
    fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }
    fn is_drained(&self) -> bool {
        true
    }
}

fn head() -> Head {
    let key = |version: u32| TokenKey { version, key: [version as u8; 32] };
    Head {
        program: "1.2.3".to_owned(),
        configuration: "a \"quoted\"\nline\n".to_owned(),
        listeners: vec!["127.0.0.1:5060".parse().unwrap(), "[::1]:5060".parse().unwrap()],
        environment: Environment {
            egress_routes: vec![EgressRoute { to: "2001:db8::/32".parse().unwrap(), listener: 1 }],
            before: Some(Seed(7)),
            message_memory: Some(1 << 30),
            query_places: Some(100),
            start: std::time::Duration::from_nanos(1_790_000_000_123_456_789),
            removed: vec!["192.0.2.7:5060".parse().unwrap()],
        },
        seed: Seed(u64::MAX),
        keys: Secret {
            base: Base([1; 32]),
            tokens: TokenKeys { current: key(3), others: vec![key(4), key(2)] },
        },
    }
}

fn flow() -> Flow {
    Flow::udp("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap())
}

/// Records `inputs` inputs. Every tenth of a millisecond, the core gets a datagram of `len` bytes
/// and a timer.
fn record(inputs: u64, len: usize) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let (recorder, journal) = Recorder::start(&file, &head(), SIZE_MIN).unwrap();
    let mut core = tidegate_world::Recorder::new(Answering::new(0), journal);
    let pool = Pool::new();
    for i in 0..inputs / 2 {
        let now = Timestamp::from_nanos(i * 100_000);
        core.offer(now, Received::new(now, flow(), pool.copy(&vec![i as u8; len])));
        while core.poll_transmit().is_some() {}
        core.handle_timeout(now);
        // Wait for the writer, so that no input is lost even on a slow disk.
        while len > 1000 && recorder.tally().written.get() + 2000 < 2 * i {
            std::thread::yield_now();
        }
    }
    drop(core);
    let recorded = recorder.finish();
    assert_eq!((recorded.inputs, recorded.lost), (inputs, 0), "{:?}", recorded.error);
    (dir, file)
}

fn replay(recording: &Recording, salt: u64) -> Verdict {
    recording.replay(&mut Answering::new(salt), &Pool::new(), |_| {}).unwrap()
}

/// Returns the blocks, with the offsets of their headers.
fn places(recording: &Recording) -> Vec<(u64, Header)> {
    recording
        .blocks()
        .map(|block| block.unwrap())
        .map(|block| (block.offset - HEADER as u64, block.header))
        .collect()
}

#[test]
fn recorded_inputs_are_replayed_exactly() {
    let (_dir, file) = record(5002, 300);
    let recording = Recording::open(&file).unwrap();
    assert_eq!(recording.head(), &head());
    assert_eq!((recording.overwritten(), recording.lost(), recording.cut()), (0, 0, None));
    let verdict = replay(&recording, 0);
    assert_eq!((verdict.inputs.datagrams, verdict.inputs.timeouts), (2501, 2501));
    assert_eq!((verdict.packets, verdict.blocks, verdict.difference), (2501, 6, None));
    let last = Timestamp::from_nanos(250_000_000);
    assert_eq!(verdict.span, Some((Timestamp::ZERO, last)));

    let other = replay(&recording, 1);
    assert_eq!(other.differing, 6);
    let from = Timestamp::ZERO;
    let difference = Difference { block: 0, first_input: 0, from, recorded: 500, sent: 500 };
    assert_eq!(other.difference, Some(difference));
}

/// A regression: the recorder wrote such a recording, but the reader did not open it.
#[test]
fn a_recording_with_the_longest_configuration_opens() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    // A line end becomes two bytes in JSON.
    let head = Head { configuration: "\n".repeat(crate::config::FILE_MAX), ..head() };
    let (recorder, journal) = Recorder::start(&file, &head, SIZE_MIN).unwrap();
    drop(journal);
    recorder.finish();
    assert!(*Recording::open(&file).unwrap().head() == head);
}

#[test]
fn others_may_not_read_the_keys() {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    let (_dir, file) = record(2, 300);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let mut open_before = fs::File::open(&file).unwrap();
    let (recorder, journal) = Recorder::start(&file, &head(), SIZE_MIN).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    drop(journal);
    recorder.finish();
    assert_eq!(Recording::open(&file).unwrap().inputs(), 0);
    // A process that had the old file open can still read it.
    let mut seen = Vec::new();
    open_before.read_to_end(&mut seen).unwrap();
    assert!(seen.len() as u64 > fs::metadata(&file).unwrap().len());
}

#[test]
fn files_that_are_not_recordings_are_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let rejected = |place: &std::path::Path| {
        let before = place.metadata().unwrap();
        let error = Recorder::start(place, &head(), SIZE_MIN).unwrap_err();
        let after = place.metadata().unwrap();
        assert_eq!((after.permissions(), after.len()), (before.permissions(), before.len()));
        error.to_string()
    };
    for place in ["/dev/null".as_ref(), dir.path()] {
        assert_eq!(rejected(place), "not a file");
    }
    let [text, empty, link] = ["text", "empty", "link"].map(|name| dir.path().join(name));
    fs::write(&text, "listen = 5060").unwrap();
    fs::write(&empty, "").unwrap();
    std::os::unix::fs::symlink(&empty, &link).unwrap();
    assert_eq!(rejected(&text), "not a recording, so it is not overwritten");
    assert_eq!(rejected(&link), "not a file");
    assert!(Recorder::start(&empty, &head(), SIZE_MIN).is_ok());
}

/// A regression: after a crash, the process was started again and overwrote the recording of the
/// crash.
#[test]
fn an_earlier_recording_is_kept_under_another_name() {
    let (dir, file) = record(1000, 300);
    let old = dir.path().join("recording.old");
    let inputs = |place: &std::path::Path| Recording::open(place).unwrap().inputs();
    for kept in [1000, 0] {
        let (recorder, _) = Recorder::start(&file, &head(), SIZE_MIN).unwrap();
        recorder.finish();
        assert_eq!((inputs(&old), inputs(&file)), (kept, 0));
    }
    fs::write(&old, "listen = 5060").unwrap();
    let error = Recorder::start(&file, &head(), SIZE_MIN).unwrap_err().to_string();
    assert!(error.ends_with("recording.old: not a recording, so it is not overwritten"), "{error}");
    assert_eq!((fs::read(&old).unwrap().as_slice(), inputs(&file)), (&b"listen = 5060"[..], 0));
}

#[test]
fn a_full_ring_keeps_the_newest_and_reports_the_loss() {
    // 25 MB of inputs for a file of 16 MB.
    let (_dir, file) = record(10_000, 5000);
    let recording = Recording::open(&file).unwrap();
    assert!(recording.overwritten() > 0 && recording.cut().is_none());
    assert!(fs::metadata(&file).unwrap().len() <= SIZE_MIN + 8192);
    let verdict = replay(&recording, 0);
    let (first, last) = verdict.span.unwrap();
    assert_eq!(last, Timestamp::from_nanos(499_900_000));
    assert_eq!(verdict.inputs.total(), recording.inputs());
    // At least 15 of 16 MB are kept, less the ends of slots into which no block fitted.
    let bytes = verdict.inputs.datagrams * 5000;
    assert!(bytes > 11_000_000 && first > Timestamp::ZERO, "{bytes}");
    assert_eq!(verdict.differing, verdict.blocks, "what the core held before is not known");
}

#[test]
fn a_truncated_recording_is_valid_up_to_its_end() {
    let (_dir, file) = record(5000, 300);
    let bytes = fs::read(&file).unwrap();
    let whole = Recording::open(&file).unwrap();
    let last = places(&whole).last().unwrap().0 as usize;
    for (len, cut, inputs) in [
        (bytes.len() - 100, true, 4000),
        (last + HEADER / 2, true, 4000),
        (last + 3, true, 4000),
        (bytes.len() - HEADER, true, 5000),
    ] {
        fs::write(&file, &bytes[..len]).unwrap();
        let recording = Recording::open(&file).unwrap();
        assert_eq!((recording.cut().is_some(), recording.inputs()), (cut, inputs), "{len}");
        assert_eq!(replay(&recording, 0).difference, None);
    }
    fs::write(&file, &bytes[..100]).unwrap();
    let error = Recording::open(&file).unwrap_err();
    assert_eq!(error.to_string(), "corrupt at byte 32: the head is cut short");
}

#[test]
fn a_changed_byte_is_found_and_its_offset_reported() {
    let (_dir, file) = record(5000, 300);
    let bytes = fs::read(&file).unwrap();
    let blocks = places(&Recording::open(&file).unwrap());
    let second = blocks[1].0;
    let corrupt = |at: usize| {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        fs::write(&file, &changed).unwrap();
        Recording::open(&file).unwrap_err().to_string()
    };
    for at in [second as usize, second as usize + 20, second as usize + HEADER + 1000] {
        assert_eq!(
            corrupt(at),
            format!("corrupt at byte {second}: the checksum of a block is wrong")
        );
    }
    assert_eq!(corrupt(40), "corrupt at byte 32: the checksum of the head is wrong");
    assert!(corrupt(0).starts_with("not a recording"));
    let other = VERSION + 256;
    let foreign = format!(
        "a recording in format {other}, but this program reads formats 5 to {VERSION}; replay it \
         with the version of Tidegate that recorded it"
    );
    assert_eq!(corrupt(17), foreign);
    // Zeros are not the end mark if a block follows them.
    let mut hole = bytes.clone();
    hole[second as usize..][..HEADER].fill(0);
    fs::write(&file, &hole).unwrap();
    let error = Recording::open(&file).unwrap_err().to_string();
    assert_eq!(error, format!("corrupt at byte {second}: the checksum of a block is wrong"));
}

#[test]
fn a_recording_of_the_format_before_is_replayed() {
    let (_dir, file) = record(2000, 300);
    let mut bytes = fs::read(&file).unwrap();
    for (version, is_read) in [(VERSION_MIN, true), (VERSION_MIN - 1, false), (VERSION + 1, false)]
    {
        bytes[16..20].copy_from_slice(&version.to_le_bytes());
        fs::write(&file, &bytes).unwrap();
        match Recording::open(&file) {
            Ok(recording) => assert!(is_read && replay(&recording, 0).difference.is_none()),
            Err(error) => assert!(!is_read && matches!(error, Unreadable::Version(_)), "{error}"),
        }
    }
}

#[test]
fn a_block_with_invalid_inputs_is_rejected_by_the_replay() {
    let (_dir, file) = record(2000, 300);
    let mut bytes = fs::read(&file).unwrap();
    let (at, header) = places(&Recording::open(&file).unwrap())[1];
    let at = at as usize;
    let payload = at + HEADER..at + HEADER + header.len as usize;
    bytes[payload.start] = 77;
    let check = block::checksum(&bytes[payload.clone()]);
    bytes[at..payload.start].copy_from_slice(&Header { check, ..header }.encode());
    fs::write(&file, &bytes).unwrap();
    let recording = Recording::open(&file).unwrap();
    let error = recording.replay(&mut Answering::new(0), &Pool::new(), |_| {}).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("corrupt at byte {}: this is not an input of a recording", payload.start)
    );
}

#[test]
fn the_highest_numbers_in_a_recording_do_no_harm() {
    let (_dir, file) = record(3000, 300);
    let mut bytes = fs::read(&file).unwrap();
    let places = places(&Recording::open(&file).unwrap());
    let mut written = |numbers: [u64; 3]| {
        for (&(at, header), number) in places.iter().zip(numbers) {
            let header = Header { number, lost: u64::MAX, ..header }.encode();
            bytes[at as usize..][..HEADER].copy_from_slice(&header);
        }
        fs::write(&file, &bytes).unwrap();
        Recording::open(&file)
    };
    let last = written([u64::MAX - 2, u64::MAX - 1, u64::MAX]).unwrap();
    assert_eq!((last.overwritten(), last.lost()), (u64::MAX - 2, u64::MAX));
    assert!(matches!(written([u64::MAX; 3]).unwrap_err(), Unreadable::Corrupt(..)));
}

#[test]
fn inputs_not_written_in_time_are_lost_and_counted() {
    let (full, to_write) = bounded(1);
    let (_written, empty) = bounded(1);
    let tally = Arc::new(Tally::default());
    let mut journal = Journal::new(full, empty, Arc::clone(&tally));
    let note = |journal: &mut Journal, count: u64| {
        for i in 0..count {
            journal.note(Entry { now: Timestamp::from_nanos(i), input: Input::Serve });
        }
    };
    note(&mut journal, 3500);
    // One block waits, two blocks were dropped, and inputs are still added to one block.
    assert_eq!(tally.overrun.get(), 2000);
    assert_eq!(to_write.recv().unwrap().count, 1000);
    drop(journal);
    let last = to_write.recv().unwrap();
    assert_eq!((last.lost, last.count), (2000, 500));
    assert!(to_write.recv().is_err());
}

#[test]
fn a_block_is_closed_after_a_second() {
    let (full, to_write) = bounded(8);
    let (_written, empty) = bounded(1);
    let mut journal = Journal::new(full, empty, Arc::default());
    for ms in [5000, 5999, 6000, 6001] {
        let now = Timestamp::from_nanos(ms * 1_000_000);
        journal.note(Entry { now, input: Input::Timeout });
    }
    assert_eq!(to_write.try_recv().unwrap().count, 2);
    assert!(to_write.try_recv().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_change_is_an_error_or_a_shorter_recording(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        len in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let (_dir, file) = record(3000, 20);
        let mut bytes = fs::read(&file).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(len.index(bytes.len()));
        }
        fs::write(&file, &bytes).unwrap();
        if let Ok(recording) = Recording::open(&file) {
            let verdict = replay(&recording, 0);
            prop_assert!(verdict.inputs.total() <= 3000 && verdict.difference.is_none());
        }
    }

    #[test]
    fn any_bytes_behind_a_head_are_read_without_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..2000)
    ) {
        let (_dir, file) = record(0, 0);
        let mut content = fs::read(&file).unwrap();
        content.resize(content.len().next_multiple_of(4096), 0);
        content.extend(bytes);
        fs::write(&file, &content).unwrap();
        if let Ok(recording) = Recording::open(&file) {
            prop_assert_eq!(recording.inputs(), 0);
        }
    }
}
