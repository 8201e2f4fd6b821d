mod answers;
mod counting;
mod room;
mod sessions;
mod times;

use tidegate_balance::{Policy, Pool};
use tidegate_sip::Method;
use tidegate_world::{Purpose, Seed};

use super::call::{OPEN_MAX, TIMER_C};
use super::*;

const T0: Timestamp = Timestamp::from_nanos(1_000_000_000);
const IDLE: Duration = Duration::from_secs(3600);
const BACKEND_REF: BackendRef = BackendRef { pool: 0, backend: 0 };
/// Hash of the first dialog of every call in these tests.
const DIALOG: u32 = 77;
/// Hash of the second dialog of a forked call.
const SECOND_DIALOG: u32 = 79;
const OTHER: BackendRef = BackendRef { pool: 0, backend: 1 };
/// The copies of an INVITE that a proxy before this one has forked.
const COPIES: [Transaction; 2] = [
    Transaction { identity: 7, method: Method::Invite },
    Transaction { identity: 8, method: Method::Invite },
];

/// Returns a transaction with a branch of its own for each CSeq, as clients create it.
fn transaction(method: Method, cseq: u32) -> Transaction {
    Transaction { identity: cseq.into(), method }
}

struct Table {
    calls: Calls,
    picker: Picker,
    now: Timestamp,
}

impl Table {
    fn new(calls_max: usize) -> Self {
        let [a, b] = ["127.0.0.1:5070", "127.0.0.1:5071"].map(|at| at.parse().unwrap());
        let pool = Pool::new("app", &[("a", a, 1), ("b", b, 1)]);
        Self {
            calls: Calls::new(calls_max, IDLE),
            picker: Picker::new(pool, Policy::Tlwl, Seed(1).stream(Purpose::Balance, 0)),
            now: T0,
        }
    }

    /// Creates a table with a call whose INVITE has no response yet.
    fn calling() -> (Self, CallRef) {
        let mut table = Self::new(10);
        let call = table.insert(1);
        table.request(call, Method::Invite, 1);
        (table, call)
    }

    fn insert(&mut self, fingerprint: u128) -> CallRef {
        self.calls.insert(self.now, fingerprint, BACKEND_REF).unwrap()
    }

    /// Returns whether the table has room for a call with a Call-ID that no entry has.
    fn has_room(&self) -> bool {
        self.calls.check_room(u128::MAX).is_ok()
    }

    fn request(&mut self, call: CallRef, method: Method, cseq: u32) {
        self.request_at(BACKEND_REF, call, method, cseq);
    }

    fn request_at(&mut self, backend_ref: BackendRef, call: CallRef, method: Method, cseq: u32) {
        let transaction = transaction(method, cseq);
        let evidence = self.evidence(call, method, cseq);
        self.calls.on_request(
            self.now,
            call,
            transaction,
            evidence,
            backend_ref,
            &self.picker,
            None,
        );
    }

    /// Returns the evidence in a request of an honest user agent: an INVITE begins a call, unless
    /// the call is established.
    fn evidence(&self, call: CallRef, method: Method, cseq: u32) -> Evidence {
        let is_up = self.calls.get(call).is_some_and(|call| call.phase == Phase::Established);
        match method {
            Method::Invite if !is_up => Evidence { copy: cseq | 1 << 31, ..Evidence::default() },
            Method::Options | Method::Register => Evidence::default(),
            _ => Evidence { dialog: DIALOG, copy: 0, has_to_tag: true },
        }
    }

    /// Returns the number of calls and the amount of work that are counted at a back end.
    fn load(&self, backend_ref: BackendRef) -> (u64, u64) {
        let backend = self.picker.backend(backend_ref.backend.into());
        (backend.calls(), backend.work())
    }

    fn request_from_backend(&mut self, call: CallRef, method: Method) {
        let cseq = (1 << 31) + u32::from(method != Method::Invite) * (1 + method as u32);
        let evidence = self.evidence(call, method, cseq);
        let transaction = transaction(method, cseq);
        self.calls.on_request_from_backend(self.now, call, transaction, evidence);
    }

    /// Sends a BYE within this dialog to the back end.
    fn bye(&mut self, call: CallRef, cseq: u32, dialog: u32) {
        let bye = transaction(Method::Bye, cseq);
        let evidence = Evidence { dialog, copy: 0, has_to_tag: true };
        self.calls.on_request(self.now, call, bye, evidence, BACKEND_REF, &self.picker, None);
    }

    fn response(&mut self, call: CallRef, method: Method, cseq: u32, status: u16) {
        let dialog = if method == Method::Invite && status > 100 { DIALOG } else { 0 };
        let answer = Answer { dialog, ..Answer::new(status, true) };
        self.calls.on_response(self.now, call, transaction(method, cseq), answer);
    }

    /// Answers a request with a 200 that sets this session interval.
    fn refreshed(&mut self, call: CallRef, method: Method, cseq: u32, interval_s: u64) {
        let session = Some(Duration::from_secs(interval_s));
        let answer = Answer { session, dialog: DIALOG, ..Answer::new(200, true) };
        self.calls.on_response(self.now, call, transaction(method, cseq), answer);
    }

    /// Returns the number of calls and the amount of work at the back end, and the number of open
    /// transactions in the table.
    fn counts(&self) -> (u64, u64, usize) {
        let (calls, work) = self.load(BACKEND_REF);
        (calls, work, self.calls.open())
    }

    /// Advances the time by `by` as a driver would, timer by timer.
    fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        let mut fired = 0;
        while let Some(at) = self.calls.poll_timeout().filter(|&at| at <= end) {
            fired += 1;
            assert!(fired < 100_000, "timers fire without end");
            self.calls.handle_timeout(at);
        }
        self.now = end;
    }

    fn established(&mut self, fingerprint: u128) -> CallRef {
        let call = self.insert(fingerprint);
        self.request(call, Method::Invite, 1);
        self.response(call, Method::Invite, 1, 200);
        self.request(call, Method::Ack, 1);
        call
    }

    /// Establishes a call that two callees behind its back end have answered.
    fn forked(&mut self, fingerprint: u128) -> CallRef {
        let call = self.established(fingerprint);
        self.second_answer(call);
        call
    }

    /// Begins a call by the [`COPIES`] of its INVITE.
    fn forked_before(&mut self) -> CallRef {
        let call = self.insert(1);
        for copy in COPIES {
            let evidence = Evidence { copy: 1, ..Evidence::default() };
            self.calls.on_request(self.now, call, copy, evidence, BACKEND_REF, &self.picker, None);
        }
        call
    }

    /// Answers the INVITE by a second callee, without a session timer.
    fn second_answer(&mut self, call: CallRef) {
        let second = Answer { dialog: SECOND_DIALOG, ..Answer::new(200, true) };
        self.calls.on_response(self.now, call, transaction(Method::Invite, 1), second);
    }
}
