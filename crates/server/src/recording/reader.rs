//! Reads and checks the file of a recording.

use std::fs::File;
use std::path::Path;

use memchr::memmem;

use super::Unreadable;
use super::block::{HEADER, Header, MARK, PAYLOAD_MAX, checksum};
use super::head::{Head, read_exact_at};
use super::layout::{Layout, SLOTS};

/// An open recording. The checksums of all its blocks have been checked.
#[derive(Debug)]
pub struct Recording {
    file: File,
    head: Head,
    /// The blocks in the order of their numbers, each with the offset of its header.
    blocks: Vec<Placed>,
    cut: Option<u64>,
}

/// A block with a valid checksum.
#[derive(Debug)]
pub struct Checked {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    /// Offset in the file, in bytes, of the first input of the block.
    pub(super) offset: u64,
}

impl Recording {
    /// Opens the recording at `path`, and checks it from beginning to end.
    ///
    /// # Errors
    /// Returns an error when the file cannot be read, is not a recording, or has been changed.
    pub fn open(path: &Path) -> Result<Self, Unreadable> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            // A pipe is not a recording, because it cannot be read at offsets.
            return Err(Unreadable::Foreign);
        }
        let (head, layout) = Head::read(&file)?;
        let (blocks, cut) = scan(&file, &layout)?;
        Ok(Self { file, head, blocks, cut })
    }

    /// Returns the head, which describes how the core was built.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the number of blocks that are no longer in the file, because later blocks have
    /// overwritten them.
    pub fn overwritten(&self) -> u64 {
        self.blocks.first().map_or(0, |(_, header)| header.number)
    }

    /// Returns the number of inputs that are missing between the blocks of the file, because the
    /// disk was slower than the core.
    pub fn lost(&self) -> u64 {
        // Inputs lost before the first block are not a gap in the recording, which begins with that
        // block.
        let lost = self.blocks.iter().skip(1).map(|(_, header)| header.lost);
        lost.fold(0, u64::saturating_add)
    }

    /// Returns the offset of the incomplete block that a crash of the machine has left after the
    /// last valid block, if there is one.
    pub fn cut(&self) -> Option<u64> {
        self.cut
    }

    /// Returns the number of inputs in the recording.
    pub fn inputs(&self) -> u64 {
        self.blocks.iter().map(|(_, header)| u64::from(header.inputs)).sum()
    }

    /// Returns the blocks of the recording in the order of their numbers.
    pub fn blocks(&self) -> impl Iterator<Item = Result<Checked, Unreadable>> + '_ {
        self.blocks.iter().map(|&(at, header)| {
            let changed = Unreadable::Corrupt(at, "the file was changed while it was read");
            checked(&self.file, at, header)?.ok_or(changed)
        })
    }
}

/// Reads the block whose header, at the offset `at`, is `header`. Returns `None` if the inputs of
/// the block do not match the checksum.
fn checked(file: &File, at: u64, header: Header) -> Result<Option<Checked>, Unreadable> {
    let offset = at + HEADER as u64;
    let mut payload = vec![0; header.len as usize];
    let read = read_exact_at(file, &mut payload, offset)?;
    let whole = read.is_some() && checksum(&payload) == header.check;
    Ok(whole.then_some(Checked { header, payload, offset }))
}

/// The offset of a block in the file, and the header of the block.
type Placed = (u64, Header);

/// Finds all blocks in the file, in the order of their numbers. If the last block is incomplete,
/// also returns its offset.
fn scan(file: &File, layout: &Layout) -> Result<(Vec<Placed>, Option<u64>), Unreadable> {
    let mut slots = Vec::new();
    for index in 0..SLOTS {
        slots.push((index, Slot::read(file, layout, index)?));
    }
    let newest = slots.iter().filter_map(|(i, slot)| Some((slot.first()?, *i))).max();
    let newest = newest.map(|(_, index)| index);
    let mut cut = None;
    for (index, slot) in &slots {
        let Some(at) = slot.broken else { continue };
        // A crash can damage only the end of the slot that was written last, or the beginning of
        // the next slot.
        let last = match newest {
            None => *index == 0,
            Some(newest) if slot.blocks.is_empty() => *index == (newest + 1) % SLOTS,
            Some(newest) => *index == newest,
        };
        if !last || slot.goes_on {
            return Err(Unreadable::Corrupt(at, "the checksum of a block is wrong"));
        }
        cut = Some(at);
    }
    slots.sort_by_key(|(_, slot)| slot.first());
    let blocks: Vec<_> = slots.into_iter().flat_map(|(_, slot)| slot.blocks).collect();
    for pair in blocks.windows(2) {
        let [(_, before), (at, header)] = [pair[0], pair[1]];
        if before.number.checked_add(1) != Some(header.number) {
            return Err(Unreadable::Corrupt(at, "a block is missing before this one"));
        }
    }
    Ok((blocks, cut))
}

/// The valid blocks in a slot, and the position of invalid data after them.
struct Slot {
    blocks: Vec<Placed>,
    /// Offset of the first data in the slot that are neither a valid block nor the end mark, if
    /// any.
    broken: Option<u64>,
    /// True if a valid block follows the data at `broken`.
    goes_on: bool,
}

impl Slot {
    fn first(&self) -> Option<u64> {
        self.blocks.first().map(|(_, header)| header.number)
    }

    fn read(file: &File, layout: &Layout, index: u64) -> Result<Self, Unreadable> {
        let (mut at, end) = (layout.offset(index), layout.offset(index + 1));
        let mut slot = Self { blocks: Vec::new(), broken: None, goes_on: false };
        let file_len = file.metadata()?.len();
        while at + HEADER as u64 <= end.min(file_len) {
            let mut header = [0; HEADER];
            read_exact_at(file, &mut header, at)?;
            let last = slot.blocks.last().map(|(_, last): &Placed| last.number);
            // Saturates, because no number follows the highest possible one.
            let expected = last.map(|last| last.saturating_add(1));
            if header == [0; HEADER] {
                // The blocks end here. A later block means that the zeros are an error.
                if later(file, at + 1, end, expected.unwrap_or(0))? {
                    (slot.broken, slot.goes_on) = (Some(at), true);
                }
                return Ok(slot);
            }
            let next = Header::decode(&header);
            let fits = |h: &Header| {
                expected.is_none_or(|number| number == h.number)
                    && at + HEADER as u64 + u64::from(h.len) <= end
            };
            let whole = match next.filter(fits) {
                Some(header) => checked(file, at, header)?.map(|_| header),
                None => None,
            };
            let Some(header) = whole else {
                slot.broken = Some(at);
                slot.goes_on = later(file, at + 1, end, expected.unwrap_or(0))?;
                return Ok(slot);
            };
            slot.blocks.push((at, header));
            at += HEADER as u64 + u64::from(header.len);
        }
        // There was room for an end mark after the last block, but the end mark is missing.
        if !slot.blocks.is_empty() && at + (HEADER as u64) <= end {
            slot.broken = Some(at);
        }
        Ok(slot)
    }
}

/// Returns whether a block with a number above `number` begins between the offsets `at` and `end`.
/// Old blocks, which newer blocks in the slot have partly overwritten, have lower numbers.
fn later(file: &File, at: u64, end: u64, number: u64) -> Result<bool, Unreadable> {
    const WINDOW: usize = PAYLOAD_MAX;
    let mut at = at;
    let mut window = Vec::new();
    while at + HEADER as u64 <= end {
        window.resize(WINDOW.min((end - at) as usize), 0);
        let read = std::os::unix::fs::FileExt::read_at(file, &mut window, at)?;
        if read < HEADER {
            return Ok(false);
        }
        window.truncate(read);
        let decoded = |offset: usize| Header::decode(&window[offset..]);
        if memmem::find_iter(&window, &MARK).filter_map(decoded).any(|h| h.number > number) {
            return Ok(true);
        }
        // A header may lie across two windows, so the windows overlap.
        at += (read - HEADER + 1) as u64;
    }
    Ok(false)
}
