//! Pooled packet buffers.
//!
//! A buffer is taken from the shard's pool, and filled by `recvmmsg` or by the code that writes a
//! message. When it is dropped, its memory returns to the pool, unless the buffer has grown. A
//! buffer belongs to one thread, so a message that is handed off to another shard is copied.
//! Handoffs are rare.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::rc::Rc;

/// Capacity of an ordinary buffer, in bytes: more than any common SIP message.
pub const SMALL: usize = 2048;

/// Maximum capacity of a buffer, in bytes. No UDP payload is longer.
pub const LARGE: usize = 65_535;

/// Maximum number of unused buffers that a pool keeps. The pool frees further unused buffers.
const SPARE_MAX: usize = 4096;

/// Usage counts of a [`Pool`] of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolUse {
    /// Number of buffers that were allocated because the pool had no unused buffer.
    pub small_allocated: u64,
    /// Number of times that a buffer has grown. The pool never keeps buffers that have grown.
    pub large_allocated: u64,
    /// Number of buffers in use now.
    pub live: u64,
}

#[derive(Default)]
struct Shelf {
    spare: RefCell<Vec<Box<[u8]>>>,
    used: Cell<PoolUse>,
}

impl Shelf {
    fn note(&self, change: impl FnOnce(&mut PoolUse)) {
        let mut used = self.used.get();
        change(&mut used);
        self.used.set(used);
    }
}

/// A shard's supply of buffers. A clone is another handle to the same supply.
#[derive(Clone, Default)]
pub struct Pool(Rc<Shelf>);

impl Pool {
    /// Creates an empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty buffer with the capacity [`SMALL`]. The buffer grows up to [`LARGE`] if
    /// more bytes are written.
    pub fn take(&self) -> Buffer {
        self.0.note(|u| u.live += 1);
        let data = self.0.spare.borrow_mut().pop().unwrap_or_else(|| {
            self.0.note(|u| u.small_allocated += 1);
            vec![0; SMALL].into_boxed_slice()
        });
        Buffer { data, len: 0, shelf: Rc::clone(&self.0) }
    }

    /// Copies `bytes` into a new buffer. Bytes after the first [`LARGE`] are left out.
    pub fn copy(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.take();
        let fits = &bytes[..bytes.len().min(LARGE)];
        buffer.push(fits).expect("cut to the largest capacity");
        buffer
    }

    /// Returns the usage so far.
    pub fn used(&self) -> PoolUse {
        self.0.used.get()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.used()).finish()
    }
}

/// The bytes of a packet, in memory that belongs to a [`Pool`].
pub struct Buffer {
    data: Box<[u8]>,
    len: usize,
    shelf: Rc<Shelf>,
}

impl Buffer {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// Returns an error when the result would be longer than [`LARGE`]. Nothing is appended then.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.len + bytes.len();
        if end > self.data.len() {
            self.grow(end)?;
        }
        self.data[self.len..end].copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Returns the whole capacity of the buffer, for a driver to fill. The driver then calls
    /// [`set_len`](Self::set_len).
    pub fn room_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Returns the capacity of the buffer in bytes: [`SMALL`], or more if it has grown.
    pub fn capacity(&self) -> usize {
        self.data.len()
    }

    /// Sets the content to the first `len` bytes of the capacity.
    ///
    /// # Panics
    /// Panics if `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.data.len(), "content longer than its buffer");
        self.len = len;
    }

    #[cold]
    fn grow(&mut self, end: usize) -> io::Result<()> {
        if end > LARGE {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "longer than 65,535 bytes"));
        }
        self.shelf.note(|u| u.large_allocated += 1);
        // The buffer grows to the next power of two, not to `LARGE`. Otherwise a queue of messages
        // slightly longer than an ordinary buffer would take thirty times their size.
        let mut large = vec![0; end.next_power_of_two().min(LARGE)].into_boxed_slice();
        large[..self.len].copy_from_slice(&self.data[..self.len]);
        let small = std::mem::replace(&mut self.data, large);
        self.shelf.keep(small);
        Ok(())
    }
}

impl Shelf {
    fn keep(&self, data: Box<[u8]>) {
        let mut spare = self.spare.borrow_mut();
        if data.len() == SMALL && spare.len() < SPARE_MAX {
            spare.push(data);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.shelf.note(|u| u.live -= 1);
        self.shelf.keep(std::mem::take(&mut self.data));
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.data[..self.len]
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Pool(Rc::clone(&self.shelf)).copy(self)
    }
}

impl io::Write for Buffer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map(|()| bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.push(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?})", String::from_utf8_lossy(self))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_dropped_buffer_is_taken_again() {
        let pool = Pool::new();
        for _ in 0..3 {
            let mut b = pool.take();
            b.push(b"INVITE").unwrap();
            assert_eq!(&b[..], b"INVITE");
        }
        assert_eq!(pool.used(), PoolUse { small_allocated: 1, large_allocated: 0, live: 0 });
        assert!(pool.take().is_empty(), "a buffer taken again starts empty");
    }

    #[test]
    fn a_buffer_grows_once_and_only_when_its_content_does_not_fit() {
        let pool = Pool::new();
        let mut b = pool.copy(&[7; SMALL]);
        assert_eq!(pool.used(), PoolUse { small_allocated: 1, large_allocated: 0, live: 1 });
        b.push(b"x").unwrap();
        b.push(b"y").unwrap();
        assert_eq!(&b[..], [&[7; SMALL][..], b"xy"].concat());
        assert_eq!(pool.used(), PoolUse { small_allocated: 1, large_allocated: 1, live: 1 });
        assert_eq!(b.capacity(), 2 * SMALL);
        // The smaller buffer is spare now.
        let _second = pool.take();
        assert_eq!(pool.used(), PoolUse { small_allocated: 1, large_allocated: 1, live: 2 });
    }

    #[test]
    fn a_driver_fills_the_room_and_sets_the_length() {
        let mut b = Pool::new().copy(b"before");
        let room = b.room_mut();
        assert_eq!(room.len(), SMALL);
        room[..6].copy_from_slice(b"INVITE");
        b.set_len(3);
        assert_eq!(&b[..], b"INV");
    }

    #[test]
    #[should_panic(expected = "content longer than its buffer")]
    fn a_driver_that_claims_more_than_the_room_is_stopped() {
        Pool::new().take().set_len(SMALL + 1);
    }

    #[test]
    fn an_emitter_writes_all_or_nothing() {
        let mut b = Pool::new().copy(&[7; LARGE - 6]);
        assert_eq!(b.write(b"ACK").unwrap(), 3);
        b.write_all(b"BYE").unwrap();
        assert_eq!(&b[LARGE - 6..], b"ACKBYE");
        assert!(b.write(b"x").is_err() && b.write_all(b"x").is_err());
        assert_eq!(b.len(), LARGE);
    }

    #[test]
    fn content_beyond_a_datagram_is_rejected_and_changes_nothing() {
        let pool = Pool::new();
        let mut b = pool.copy(&[7; LARGE]);
        assert!(b.push(b"x").is_err());
        assert_eq!(b.len(), LARGE);
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limit() {
        let pool = Pool::new();
        let many: Vec<_> = (0..SPARE_MAX + 10).map(|_| pool.take()).collect();
        drop(many);
        assert_eq!(pool.0.spare.borrow().len(), SPARE_MAX);
    }

    proptest! {
        #[test]
        fn content_is_what_was_written(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..900), 0..8)) {
            let pool = Pool::new();
            let mut b = pool.take();
            for p in &pieces {
                b.push(p).unwrap();
            }
            let whole = pieces.concat();
            prop_assert_eq!(&b[..], &whole[..]);
            let copy = b.clone();
            prop_assert_eq!(&copy[..], &whole[..]);
        }
    }
}
