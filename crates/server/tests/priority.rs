//! Tests of the cap on priority calls, which applies to the whole process.

use std::net::SocketAddr;
use std::path::Path;

use tidegate_control::Bucket;
use tidegate_proxy::Secret;
use tidegate_server::assembly::{Assembly, Server};
use tidegate_server::config::Config;
use tidegate_world::{Core, Flow, Pool, Received, Seed, Timestamp};

const CONFIGURATION: &str = "
    [server]
    shards = 8
    [[listen]]
    transport = \"udp\"
    address = \"192.0.2.1:5060\"
    [[pool]]
    name = \"app\"
    [[pool.backend]]
    uri = \"sip:10.0.0.1\"
    [overload.priority]
    from = [\"198.51.100.7\"]
    cap_cps = 8
";

/// Offers an emergency call to a shard.
fn call(shard: &mut Server, number: u32) {
    let [local, remote]: [SocketAddr; 2] =
        ["192.0.2.1:5060", "198.51.100.7:5060"].map(|text| text.parse().unwrap());
    let invite = format!(
        "INVITE urn:service:sos SIP/2.0\r\n\
         Via: SIP/2.0/UDP 198.51.100.7:5060;branch=z9hG4bK-{number}\r\n\
         From: <sip:alice@example.com>;tag=caller\r\n\
         To: <urn:service:sos>\r\n\
         Call-ID: {number}\r\n\
         CSeq: 1 INVITE\r\n\
         Max-Forwards: 70\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let now = Timestamp::from_nanos(1_000_000_000);
    let bytes = Pool::new().copy(invite.as_bytes());
    shard.offer(now, Received::new(now, Flow::udp(local, remote), bytes));
    while shard.serve(now) {}
}

/// All datagrams from one source port go to one shard, so one shard may need the whole cap.
#[test]
fn one_shard_may_use_the_whole_cap_and_others_share_it() {
    let config = Config::parse(Path::new("f"), CONFIGURATION.as_bytes()).unwrap();
    let locals = config.listen.iter().map(|listen| listen.address).collect();
    let keys = Secret::of([1; 32]);
    let assembly = Assembly::new(&config, &keys, locals, Seed(1));
    let [mut one, mut other] = [0, 1].map(|shard| assembly.part(shard).core(Pool::new()));
    (0..7).for_each(|number| call(&mut one, number));
    (7..10).for_each(|number| call(&mut other, number));
    call(&mut one, 10);
    let with_priority = |shard: usize| {
        let flows = &assembly.counters()[shard].proxy.overload.flows;
        flows[Bucket::Priority as usize].offered.get()
    };
    assert_eq!([0, 1].map(with_priority), [7, 1]);
}
