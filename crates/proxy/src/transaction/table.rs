//! The table of the response contexts of a shard, with limits on their number and memory.

use tidegate_transaction::{Full, Handle, Key, Table, Timing};
use tidegate_world::Timestamp;

use crate::shares::{Amount, Shares, SourceBucket, for_new_work, is_scarce};
use crate::transaction::context::{Context, Counted, Pending};

/// A bounded table of the response contexts of a shard.
pub(crate) struct Transactions {
    table: Table<Box<Context>>,
    pub(crate) timing: Timing,
    clients: usize,
    servers: usize,
    unfinished: usize,
    /// Number of bytes that the contexts and their messages use.
    bytes: usize,
    length_max: usize,
    bytes_max: usize,
    shares: Shares,
}

impl Transactions {
    /// Creates a table of up to `length_max` contexts that use up to `bytes_max` bytes. Peers
    /// choose the length of messages, so with a limit on the number alone each context could use 64
    /// KiB or more.
    pub(crate) fn new(length_max: usize, bytes_max: usize, timing: Timing) -> Self {
        Self {
            table: Table::new(length_max),
            timing,
            clients: 0,
            servers: 0,
            unfinished: 0,
            bytes: 0,
            length_max,
            bytes_max,
            shares: Shares::default(),
        }
    }

    /// Returns the number of live client transactions.
    pub(crate) fn clients(&self) -> usize {
        self.clients
    }

    /// Returns the number of live server transactions.
    pub(crate) fn servers(&self) -> usize {
        self.servers
    }

    /// Returns the number of requests that are not finished: a target may still send a final
    /// response, or the final response waits for its ACK.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Returns the number of bytes that contexts use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn is_full(&self) -> bool {
        self.table.is_full() || self.bytes >= self.bytes_max
    }

    /// Returns whether the table is full for new work: its last eighth is reserved for calls in
    /// progress.
    pub(crate) fn is_full_for_new(&self) -> bool {
        let free = self.free_for_new();
        free.entries == 0 || free.bytes == 0
    }

    /// Returns whether the table is so full that each source is limited to a share.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        is_scarce(self.table.len(), self.length_max) || is_scarce(self.bytes, self.bytes_max)
    }

    /// Returns whether a source has used up its share of the room for new work.
    pub(crate) fn is_exhausted(&self, bucket: SourceBucket) -> bool {
        self.shares.is_exhausted(bucket, self.free_for_new())
    }

    fn free_for_new(&self) -> Amount {
        Amount {
            entries: for_new_work(self.length_max).saturating_sub(self.table.len()),
            bytes: for_new_work(self.bytes_max).saturating_sub(self.bytes),
        }
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<Handle> {
        self.table.find(key)
    }

    /// Returns whether more copies of a request have arrived than a client sends. Returns `None` if
    /// there is no context of the request.
    pub(crate) fn is_flooded(&self, key: Key) -> Option<bool> {
        let handle = self.find(key)?;
        Some(self.table.get(handle).is_some_and(|context| context.budget.is_flooded()))
    }

    /// Returns the context of the request that a CANCEL with this identity cancels.
    ///
    /// RFC 3261 §9.2: "assuming that the request method is anything but CANCEL or ACK". If several
    /// requests used one branch, the CANCEL cancels the INVITE.
    pub(crate) fn find_cancelled(&self, identity: u64) -> Option<Handle> {
        let any = || self.table.find_where(identity, |_| true);
        self.find(Key::cancelled(identity)).or_else(any)
    }

    /// Reserves a place for the context of a new request. `share` is the bucket of its source, or
    /// `None` if shares do not apply.
    pub(crate) fn insert(
        &mut self,
        now: Timestamp,
        key: Key,
        share: Option<SourceBucket>,
    ) -> Result<Handle, Full> {
        if self.is_full() {
            return Err(Full);
        }
        let handle = self.table.reserve(key, now + self.timing.t1)?;
        if let Some(bucket) = share {
            self.shares.add_entry(bucket);
        }
        Ok(handle)
    }

    pub(crate) fn contexts(&self) -> impl Iterator<Item = &Context> {
        self.table.values().map(|context| &**context)
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&Context> {
        self.table.get(handle).map(|context| &**context)
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut Context> {
        self.table.get_mut(handle).map(|context| &mut **context)
    }

    /// Records that the request of a branch could not be delivered. `status` is the status to
    /// assume as the response.
    pub(crate) fn record_unreachable(&mut self, handle: Handle, branch: usize, status: u16) {
        if let Some(pending) = self.pending_mut(handle, branch) {
            pending.unreachable = Some(status);
        }
    }

    /// Records that the request of a branch was not sent, because its target reads its connection too
    /// slowly.
    pub(crate) fn record_backed_up(&mut self, handle: Handle, branch: usize) {
        if let Some(pending) = self.pending_mut(handle, branch) {
            pending.unreachable = Some(503);
            pending.is_backed_up = true;
        }
    }

    fn pending_mut(&mut self, handle: Handle, branch: usize) -> Option<&mut Pending> {
        self.get_mut(handle)?.live.as_mut()?.pending.get_mut(branch)
    }

    /// Makes a context due at `now`, as if one of its timers had expired.
    pub(crate) fn wake(&mut self, now: Timestamp, handle: Handle) {
        self.table.arm(handle, now);
    }

    /// Takes a context out of the table to change it. The caller must [settle](Self::settle) the
    /// context afterwards.
    pub(crate) fn lend(&mut self, handle: Handle) -> Option<Box<Context>> {
        self.table.lend(handle)
    }

    /// Puts a context back into the table, or removes it if all its transactions have ended.
    ///
    /// RFC 3261 §17.1.1.2: "The client transaction MUST be destroyed the instant it enters the
    /// "Terminated" state."
    ///
    /// RFC 3261 §17.1.2.2: "Once the transaction is in the terminated state, it MUST be destroyed
    /// immediately."
    ///
    /// RFC 3261 §17.2.1: "Once the transaction is in the "Terminated" state, it MUST be destroyed
    /// immediately."
    ///
    /// RFC 3261 §17.2.2: "The server transaction MUST be destroyed the instant it enters the
    /// "Terminated" state."
    ///
    /// RFC 6026 §7.1: "Once the transaction is in the "Terminated" state, it MUST be destroyed
    /// immediately."
    ///
    /// RFC 6026 §7.2: "Once the transaction is in the "Terminated" state, it MUST be destroyed
    /// immediately."
    ///
    /// RFC 6026 §8.4: "The client transaction MUST be destroyed the instant it enters the
    /// "Terminated" state."
    ///
    /// RFC 6026 §8.7: "Once the transaction is in the "Terminated" state, it MUST be destroyed
    /// immediately."
    pub(crate) fn settle(&mut self, now: Timestamp, handle: Handle, mut context: Box<Context>) {
        context.shed();
        let is_over = context.is_over();
        let counted = if is_over { Counted::default() } else { context.count() };
        let before = std::mem::replace(&mut context.counted, counted);
        self.clients = self.clients + usize::from(counted.clients) - usize::from(before.clients);
        self.servers = self.servers + usize::from(counted.server) - usize::from(before.server);
        self.unfinished += usize::from(counted.unfinished);
        self.unfinished -= usize::from(before.unfinished);
        self.bytes = self.bytes + counted.bytes as usize - before.bytes as usize;
        if let Some(bucket) = context.share {
            self.shares.resize_entry(bucket, before.bytes as usize, counted.bytes as usize);
        }
        if is_over {
            if let Some(bucket) = context.share {
                self.shares.remove_entry(bucket, 0);
            }
            self.table.remove(handle);
            return;
        }
        // The timer fires after 64·T1 at the latest. This is the time for which most contexts stay
        // in the table after their end. So a context that ends before its deadline seldom needs a
        // second, earlier timer.
        let horizon = now + self.timing.patience();
        let deadline = context.deadline().map_or(horizon, |deadline| deadline.min(horizon));
        self.table.restore(handle, context);
        self.table.arm(handle, deadline);
    }

    /// Removes a context whose request was not forwarded.
    pub(crate) fn discard(&mut self, handle: Handle, share: Option<SourceBucket>) {
        if let Some(bucket) = share {
            self.shares.remove_entry(bucket, 0);
        }
        self.table.remove(handle);
    }

    /// Returns the time when [`next_due`](Self::next_due) next returns a context.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.table.poll_timeout()
    }

    /// Returns a context with an expired timer. The caller must lend and settle it.
    pub(crate) fn next_due(&mut self, now: Timestamp) -> Option<Handle> {
        self.table.next_due(now)
    }
}
