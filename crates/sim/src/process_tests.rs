use std::net::SocketAddr;

use tidegate_world::{Cause, Pool, Question, RecordType, Transport};

use super::*;

/// A shard that records its inputs. If a message contains the number of another shard, it hands the
/// message off to that shard.
struct Recording {
    number: u16,
    inputs: Vec<String>,
    handoffs: VecDeque<Handoff>,
    queries: VecDeque<Query>,
    shedding: Shedding,
    drained: bool,
}

impl Core for Recording {
    fn offer(&mut self, _: Timestamp, received: Received) {
        let text = String::from_utf8(received.bytes.to_vec()).unwrap();
        let shard: Option<u16> = text.split(' ').nth(1).and_then(|number| number.parse().ok());
        match shard.filter(|&shard| shard != self.number) {
            Some(shard) => {
                let input = HandoffInput::Received(received);
                self.handoffs.push_back(Handoff { shard, input });
            }
            None => self.inputs.push(format!("{text} after {} handoffs", received.handoffs)),
        }
    }

    fn handle_timeout(&mut self, _: Timestamp) {}

    fn on_failed(&mut self, _: Timestamp, failure: Failure) {
        self.inputs.push(format!("failure {:?}", failure.cause));
    }

    fn on_transmit(&mut self, _: Timestamp, transmit: Transmit) {
        self.inputs.push(format!("transmit {}", String::from_utf8_lossy(&transmit.bytes)));
    }

    fn on_connected(&mut self, _: Timestamp, flow: Flow) {
        self.inputs.push(format!("connected {}", flow.connection.unwrap().get()));
    }

    fn on_command(&mut self, _: Timestamp, command: &[u8]) {
        self.inputs.push(format!("command {}", String::from_utf8_lossy(command)));
    }

    fn on_answer(&mut self, _: Timestamp, id: QueryId, _: QueryAnswer) {
        self.inputs.push(format!("{id:?} answered"));
    }

    fn on_drain(&mut self, _: Timestamp) {
        self.drained = true;
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        None
    }

    fn poll_handoff(&mut self) -> Option<Handoff> {
        self.handoffs.pop_front()
    }

    fn poll_query(&mut self) -> Option<Query> {
        self.queries.pop_front()
    }

    fn poll_shedding(&self) -> &Shedding {
        &self.shedding
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }

    fn is_drained(&self) -> bool {
        self.drained
    }
}

const DELAY: Duration = Duration::from_micros(50);

fn process(shards: u16) -> Process<Recording> {
    let shard = |number| Recording {
        number,
        inputs: Vec::new(),
        handoffs: VecDeque::new(),
        queries: VecDeque::new(),
        shedding: Shedding::default(),
        drained: false,
    };
    Process::new((0..shards).map(shard).collect(), DELAY, Arc::default())
}

fn flow(port: u16) -> Flow {
    let local = "192.0.2.1:5060".parse().unwrap();
    Flow::udp(local, SocketAddr::from(([198, 51, 100, 7], port)))
}

fn at(us: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_micros(us)
}

fn message(flow: Flow, text: &str) -> Received {
    Received::new(at(0), flow, Pool::new().copy(text.as_bytes()))
}

fn inputs(process: &mut Process<Recording>) -> Vec<Vec<String>> {
    process.shards.iter_mut().map(|shard| std::mem::take(&mut shard.inputs)).collect()
}

#[test]
fn datagrams_between_two_addresses_go_to_one_shard_with_their_failures() {
    let mut process = process(3);
    let mut chosen = Vec::new();
    for port in 5060..5160 {
        for text in ["INVITE", "BYE"] {
            process.offer(at(0), message(flow(port), text));
        }
        process.on_failed(at(0), Failure::new(flow(port), Cause::Refused, b""));
        let inputs = inputs(&mut process);
        let shard = inputs.iter().position(|inputs| !inputs.is_empty()).unwrap();
        let expected = ["INVITE after 0 handoffs", "BYE after 0 handoffs", "failure Refused"];
        assert_eq!(inputs[shard], expected);
        chosen.push(shard);
    }
    let each = [0, 1, 2].map(|shard| chosen.iter().filter(|&&it| it == shard).count());
    assert!(each.iter().all(|&count| count > 20), "{each:?}");
}

#[test]
fn a_handoff_arrives_after_its_time_and_in_order() {
    let mut process = process(3);
    let from = (5060..).find(|&port| process.shard_of(flow(port)) == 0).unwrap();
    process.offer(at(0), message(flow(from), "INVITE 2"));
    process.offer(at(10), message(flow(from), "CANCEL 2"));
    process.offer(at(10), message(flow(from), "BYE 0"));
    assert_eq!((process.handoffs.len(), process.poll_timeout()), (2, Some(at(50))));
    process.on_drain(at(10));
    assert!(!process.is_drained(), "two messages are on their way");
    assert!(process.poll_handoff().is_none());
    process.handle_timeout(at(49));
    assert_eq!(inputs(&mut process), [vec!["BYE 0 after 0 handoffs".to_owned()], vec![], vec![]]);
    process.handle_timeout(at(50));
    assert_eq!(process.poll_timeout(), Some(at(60)));
    process.handle_timeout(at(60));
    let expected = ["INVITE 2 after 1 handoffs", "CANCEL 2 after 1 handoffs"];
    assert_eq!(inputs(&mut process)[2], expected);
    assert!(process.poll_timeout().is_none() && process.is_drained());
}

#[test]
fn a_connection_belongs_to_the_shard_in_its_name() {
    let mut process = process(2);
    for shard in [1, 0] {
        let id = ConnectionId::first_accepted(ShardIndex::new(shard, 2));
        let flow = Flow { transport: Transport::Tcp, connection: Some(id), ..flow(5060) };
        process.on_connected(at(0), flow);
        process.offer(at(0), message(flow, "INVITE"));
        let transmit = Transmit::new(flow, Pool::new().copy(b"200"));
        let handoff = Handoff { shard, input: HandoffInput::Transmit(transmit) };
        process.shards[usize::from(1 - shard)].handoffs.push_back(handoff);
        process.handle_timeout(at(0));
        process.handle_timeout(at(50));
        let inputs = inputs(&mut process);
        let connected = format!("connected {}", id.get());
        let expected = [&connected, "INVITE after 0 handoffs", "transmit 200"];
        assert_eq!(inputs[usize::from(shard)], expected);
        assert!(inputs[usize::from(1 - shard)].is_empty());
    }
}

#[test]
fn an_answer_reaches_the_shard_that_asked() {
    let mut process = process(2);
    let question = Question::Resolve { name: "a.example".into(), record: RecordType::A };
    for shard in [1, 0] {
        let query = Query { id: QueryId(7), question: question.clone() };
        process.shards[shard].queries.push_back(query);
    }
    let ids: Vec<_> = std::iter::from_fn(|| process.poll_query()).map(|query| query.id).collect();
    assert_eq!(ids.len(), 2);
    for (id, shard) in ids.into_iter().zip([0, 1]) {
        for _ in 0..2 {
            process.on_answer(at(0), id, QueryAnswer::NotFound(None));
        }
        let inputs = inputs(&mut process);
        assert_eq!(inputs[shard], ["query 7 answered"], "once");
        assert!(inputs[1 - shard].is_empty());
    }
}

#[test]
fn each_shard_gets_a_command_and_drains() {
    let mut process = process(2);
    process.on_command(at(0), b"load");
    assert_eq!(inputs(&mut process), [["command load"], ["command load"]]);
    process.on_drain(at(0));
    assert!(process.is_drained());
    process.shards[1].drained = false;
    assert!(!process.is_drained());
}

#[test]
fn each_shard_sheds_by_its_own_filter() {
    let mut process = process(2);
    let port = |shard| (5060..).find(|&port| process.shard_of(flow(port)) == shard).unwrap();
    let ports = [port(0), port(1)];
    process.shards[1].shedding = Shedding { shares: [1.0; 2], ..Shedding::default() };
    for port in ports {
        process.offer(at(0), message(flow(port), "INVITE sip:a"));
    }
    assert_eq!(inputs(&mut process), [vec!["INVITE sip:a after 0 handoffs".to_owned()], vec![]]);
    assert_eq!(process.filtered.get(), 1);
    assert!(!process.poll_shedding().drops(flow(1).remote.ip(), b"INVITE sip:a"));
}
