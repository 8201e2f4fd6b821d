//! Observes the calls at the proxy.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sip::{Method, Scan, ScanStart, scan};
use tidegate_world::{Entry, Flow, Input, Log, Timestamp, Transmit};

/// A call at the proxy, as its packets show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Arrival of the call's first INVITE.
    pub arrived: Timestamp,
    /// Address of the caller.
    pub caller: SocketAddr,
    /// The proxy's address at which the call arrived.
    pub local: SocketAddr,
    /// CSeq number of the call's latest INVITE. The caller increments it for each further attempt
    /// with the same Call-ID, for example with credentials after a 401.
    pub cseq: u32,
    /// Number of retransmissions of the call's INVITEs.
    pub repeated: u32,
    /// Time at which the proxy first forwarded the latest INVITE, or `None` if it did not forward
    /// it.
    pub forwarded: Option<Timestamp>,
    /// True if a callee sent a provisional response other than 100.
    pub rang: bool,
    /// Status and arrival of the first final response that a callee sent to the latest INVITE.
    pub answered: Option<(u16, Timestamp)>,
    /// Status and time of the first final response that the proxy sent to the caller for the latest
    /// INVITE.
    pub decided: Option<(u16, Timestamp)>,
    /// Arrival of the call's first CANCEL.
    pub given_up: Option<Timestamp>,
    /// Arrival of the call's first BYE.
    pub ended: Option<Timestamp>,
}

impl Call {
    /// Returns the time from the arrival of the first INVITE until the proxy sent a 2xx to the
    /// caller, or `None` if the proxy sent no 2xx.
    pub fn setup(&self) -> Option<Duration> {
        let (status, at) = self.decided?;
        (status < 300).then(|| at.since(self.arrived))
    }

    /// Returns whether the proxy itself rejected the call, without forwarding its INVITE.
    pub fn is_rejected(&self) -> bool {
        self.forwarded.is_none() && self.decided.is_some_and(|(status, _)| status >= 300)
    }
}

/// An observer of the calls at a proxy, by the packets that the proxy receives and sends.
#[derive(Debug, Default)]
pub struct Observer {
    calls: Vec<Call>,
    by_id: HashMap<Box<[u8]>, usize>,
    uris: HashMap<SocketAddr, String>,
}

impl Observer {
    /// Returns the calls, in the order in which the proxy read their first INVITEs.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Returns the Request-URI of the first call from the address `caller`.
    pub fn uri(&self, caller: SocketAddr) -> Option<&str> {
        self.uris.get(&caller).map(String::as_str)
    }

    /// Records an input of the proxy.
    pub fn see<B: AsRef<[u8]>>(&mut self, entry: &Entry<B>) {
        let Input::Offer(arrived, flow, bytes, _) = &entry.input else { return };
        let Ok(scanned) = scan(bytes.as_ref()) else { return };
        match scanned.start {
            ScanStart::Request { method: Method::Invite, uri, .. } if scanned.to_tag.is_none() => {
                self.invite(*arrived, flow, &scanned, uri);
            }
            ScanStart::Request { method: Method::Bye, .. } => {
                if let Some(call) = self.call(&scanned) {
                    call.ended.get_or_insert(*arrived);
                }
            }
            ScanStart::Request { method: Method::Cancel, .. } => {
                if let Some(call) = self.call(&scanned) {
                    call.given_up.get_or_insert(*arrived);
                }
            }
            ScanStart::Response { status } if scanned.cseq_method == Method::Invite => {
                let Some(call) = self.call(&scanned) else { return };
                match status {
                    100 => {}
                    101..200 => call.rang = true,
                    _ if scanned.cseq == call.cseq => {
                        call.answered.get_or_insert((status, *arrived));
                    }
                    // This is a retransmitted response to an earlier INVITE.
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Records a packet that the proxy sent at `now`.
    pub fn see_sent(&mut self, now: Timestamp, flow: Flow, bytes: &[u8]) {
        let Ok(scanned) = scan(bytes) else { return };
        let Some(call) = self.call(&scanned).filter(|call| call.cseq == scanned.cseq) else {
            return;
        };
        match scanned.start {
            ScanStart::Request { method: Method::Invite, .. } if scanned.to_tag.is_none() => {
                call.forwarded.get_or_insert(now);
            }
            ScanStart::Response { status }
                if status >= 200
                    && scanned.cseq_method == Method::Invite
                    && flow.remote == call.caller =>
            {
                call.decided.get_or_insert((status, now));
            }
            _ => {}
        }
    }

    fn invite(&mut self, arrived: Timestamp, flow: &Flow, scanned: &Scan<'_>, uri: &[u8]) {
        if let Some(call) = self.call(scanned) {
            if flow.remote != call.caller {
                // The proxy itself has sent this request to its own address, so it is not a
                // retransmission.
            } else if scanned.cseq > call.cseq {
                call.cseq = scanned.cseq;
                (call.forwarded, call.answered, call.decided) = (None, None, None);
            } else {
                call.repeated += 1;
            }
            return;
        }
        self.by_id.insert(scanned.call_id.into(), self.calls.len());
        let first = || String::from_utf8_lossy(uri).into_owned();
        self.uris.entry(flow.remote).or_insert_with(first);
        self.calls.push(Call {
            arrived,
            caller: flow.remote,
            local: flow.local,
            cseq: scanned.cseq,
            repeated: 0,
            forwarded: None,
            rang: false,
            answered: None,
            decided: None,
            given_up: None,
            ended: None,
        });
    }

    fn call(&mut self, scanned: &Scan<'_>) -> Option<&mut Call> {
        self.by_id.get(scanned.call_id).map(|&index| &mut self.calls[index])
    }
}

impl Log for Observer {
    fn note(&mut self, entry: Entry<&[u8]>) {
        self.see(&entry);
    }

    fn sent(&mut self, now: Timestamp, transmit: &Transmit) {
        self.see_sent(now, transmit.flow, &transmit.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as ms;

    const CALLER: &str = "127.0.0.1:1";
    const PROXY: &str = "127.0.0.1:2";
    const CALLEE: &str = "127.0.0.1:3";

    fn message(start: &str, cseq: &str, to_tag: &str) -> String {
        format!(
            "{start}\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n\
             To: <sip:b@h>{to_tag}\r\nCall-ID: one\r\nCSeq: 1 {cseq}\r\nContent-Length: 0\r\n\r\n"
        )
    }

    fn invite(to_tag: &str) -> String {
        message("INVITE sip:b@h SIP/2.0", "INVITE", to_tag)
    }

    fn response(status: u16) -> String {
        message(&format!("SIP/2.0 {status} X"), "INVITE", ";tag=2")
    }

    fn flow(remote: &str) -> Flow {
        Flow::udp(PROXY.parse().unwrap(), remote.parse().unwrap())
    }

    fn arrives(observer: &mut Observer, at: u64, from: &str, text: &str) {
        // The proxy reads each message one millisecond after its arrival.
        let input = Input::Offer(ms(at), flow(from), text.as_bytes(), 0);
        observer.see(&Entry { now: ms(at + 1), input });
    }

    #[test]
    fn a_call_is_followed_from_its_invite_to_its_bye() {
        let mut observer = Observer::default();
        arrives(&mut observer, 10, CALLER, &invite(""));
        observer.see_sent(ms(12), flow(CALLER), response(100).as_bytes());
        observer.see_sent(ms(12), flow(CALLEE), invite("").as_bytes());
        arrives(&mut observer, 20, CALLER, &invite(""));
        arrives(&mut observer, 21, CALLEE, &response(180));
        arrives(&mut observer, 30, CALLEE, &response(200));
        observer.see_sent(ms(33), flow(CALLER), response(200).as_bytes());
        observer.see_sent(ms(40), flow(CALLER), response(200).as_bytes());
        arrives(&mut observer, 45, CALLER, &invite(";tag=2"));
        arrives(&mut observer, 50, CALLER, &message("BYE sip:b@h SIP/2.0", "BYE", ";tag=2"));
        let [call] = observer.calls() else { panic!("{:?}", observer.calls()) };
        let expected = Call {
            arrived: ms(10),
            caller: CALLER.parse().unwrap(),
            local: PROXY.parse().unwrap(),
            cseq: 1,
            repeated: 1,
            forwarded: Some(ms(12)),
            rang: true,
            answered: Some((200, ms(30))),
            decided: Some((200, ms(33))),
            given_up: None,
            ended: Some(ms(50)),
        };
        assert_eq!(call, &expected);
        assert_eq!(call.setup(), Some(Duration::from_millis(23)));
        assert!(!call.is_rejected());
        assert_eq!(observer.uri(call.caller), Some("sip:b@h"));
    }

    #[test]
    fn a_call_is_rejected_if_no_back_end_was_tried() {
        let mut observer = Observer::default();
        arrives(&mut observer, 10, CALLER, &invite(""));
        observer.see_sent(ms(11), flow(CALLER), response(503).as_bytes());
        assert!(observer.calls()[0].is_rejected());
        assert_eq!(observer.calls()[0].setup(), None);
        let mut busy = Observer::default();
        arrives(&mut busy, 10, CALLER, &invite(""));
        busy.see_sent(ms(11), flow(CALLEE), invite("").as_bytes());
        arrives(&mut busy, 12, CALLEE, &response(486));
        busy.see_sent(ms(13), flow(CALLER), response(486).as_bytes());
        assert!(!busy.calls()[0].is_rejected());
    }

    #[test]
    fn a_challenged_call_has_the_outcome_of_its_invite_with_credentials() {
        let second = |text: String| text.replace("CSeq: 1", "CSeq: 2");
        let mut observer = Observer::default();
        arrives(&mut observer, 10, CALLER, &invite(""));
        observer.see_sent(ms(11), flow(CALLEE), invite("").as_bytes());
        arrives(&mut observer, 12, CALLEE, &response(401));
        observer.see_sent(ms(13), flow(CALLER), response(401).as_bytes());
        arrives(&mut observer, 14, CALLER, &second(invite("")));
        // The callee has not got the ACK yet.
        arrives(&mut observer, 15, CALLEE, &response(401));
        observer.see_sent(ms(15), flow(CALLER), response(401).as_bytes());
        observer.see_sent(ms(16), flow(CALLEE), second(invite("")).as_bytes());
        arrives(&mut observer, 17, CALLER, &second(invite("")));
        arrives(&mut observer, 18, CALLEE, &second(response(200)));
        observer.see_sent(ms(19), flow(CALLER), second(response(200)).as_bytes());
        let [call] = observer.calls() else { panic!("{:?}", observer.calls()) };
        assert_eq!((call.arrived, call.forwarded), (ms(10), Some(ms(16))));
        assert_eq!(call.answered, Some((200, ms(18))));
        assert_eq!((call.setup(), call.repeated), (Some(Duration::from_millis(9)), 1));
    }

    #[test]
    fn a_call_is_given_up_by_the_first_cancel() {
        let mut observer = Observer::default();
        arrives(&mut observer, 10, CALLER, &invite(""));
        for at in [30, 40] {
            let cancel = message("CANCEL sip:b@h SIP/2.0", "CANCEL", "");
            arrives(&mut observer, at, CALLER, &cancel);
        }
        assert_eq!(observer.calls()[0].given_up, Some(ms(30)));
    }

    #[test]
    fn messages_that_are_not_sip_or_of_no_call_are_ignored() {
        let mut observer = Observer::default();
        arrives(&mut observer, 1, CALLER, "x");
        arrives(&mut observer, 1, CALLEE, &response(200));
        arrives(&mut observer, 1, CALLER, &invite(";tag=2"));
        observer.see_sent(ms(2), flow(CALLER), response(481).as_bytes());
        assert!(observer.calls().is_empty());
    }
}
