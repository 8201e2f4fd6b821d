//! Tests of commands that a shard has not executed, and of a reload for which it has no room.
#![allow(clippy::disallowed_methods)] // The tests wait for threads.

mod http;
mod process;
mod shard;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HOST;
use process::Process;
use tidegate_balance::{AdminState, Service};
use tidegate_io::Stop;
use tidegate_proxy::Secret;
use tidegate_server::assembly::Assembly;
use tidegate_server::audit::Outcome;
use tidegate_server::config::{Config, Found};
use tidegate_world::{Core, Pool, Seed, SrvRecord, Timestamp, Transport};

const CONFIGURATION: &str = "
    [[listen]]
    transport = \"udp\"
    address = \"127.0.0.1:0\"
    [[pool]]
    name = \"app\"
    [[pool.backend]]
    uri = \"sip:example.com\"
";

#[test]
fn a_shard_without_room_removes_no_back_end() {
    // A pool has no room for two sets of this many back ends at once.
    const SERVERS: usize = 33_000;
    let config = Config::parse(Path::new("f"), CONFIGURATION.as_bytes()).unwrap();
    let keys = Secret::of([1; 32]);
    let local = "127.0.0.1:5060".parse().unwrap();
    let assembly = Assembly::new(&config, &keys, vec![local], Seed(1));
    let mut core = assembly.part(0).core(Pool::new());
    let in_service = || {
        let is_it = |port: &u16| {
            let backend = assembly.registry().find(&format!("s0.example.com:{port}"));
            backend.is_some_and(|backend| backend.admin_state() == AdminState::InService)
        };
        [5060, 5070].into_iter().filter(is_it).collect::<Vec<u16>>()
    };
    let mut find = |port: u16, servers: usize| {
        let server = |number: usize| SrvRecord {
            priority: 0,
            weight: 0,
            port,
            target: format!("s{number}.example.com.").into(),
        };
        let service = Service::new("example.com", Transport::Udp);
        service.set_servers((0..servers).map(server).collect());
        let command = Found::of(&[Arc::new(service)]).text();
        core.on_command(Timestamp::ZERO, command.as_bytes());
        let in_force = &assembly.counters()[0].proxy.in_force;
        let counts = (in_force.commands.get(), in_force.commands_rejected.get());
        (counts, in_force.last_rejected.get(), in_service())
    };
    assert_eq!(find(5060, SERVERS), ((1, 0), 0, vec![5060]));
    assert_eq!(find(5070, SERVERS), ((1, 1), 2, vec![5060]));
    assert_eq!(find(5070, 7), ((2, 1), 2, vec![5070]));
}

fn load(file: &Path) -> Config {
    let (config, ..) = Config::load(file).unwrap_or_else(|wrong| panic!("{wrong}"));
    config
}

#[test]
fn a_rejected_reload_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    let write = |port: u16| {
        let backend = format!("sip:127.0.0.1:{port}");
        fs::write(&file, CONFIGURATION.replace("sip:example.com", &backend)).unwrap();
    };
    write(9);
    let (config, keys) = (load(&file), Secret::of([1; 32]));
    let Process { assembly, group, clock, commands, admin, told } = Process::start(&config, &keys);
    let stop = Stop::new();
    let shard = shard::drive(assembly.part(0), group, clock, stop.clone(), commands);
    let reload = || loop {
        let (status, said) = http::ask(admin.address(), "POST", "/reload", HOST, "");
        // A status of 503 means that the shard has not started yet.
        if status != 503 {
            break (status, said);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // This makes the first command look rejected, as if the shard had no room for it.
    assembly.counters()[0].proxy.in_force.last_rejected.set(1);
    write(10);
    let (status, said) = reload();
    assert_eq!(status, 409, "{said}");
    assert!(said.contains("cannot reload: there are too many back ends"), "{said}");
    let last = told.try_iter().last().unwrap().to_string();
    assert!(last.contains("failed: cannot reload"), "{last}");
    let (status, said) = reload();
    assert_eq!(status, 200, "{said}");
    stop.request();
    shard.join().unwrap();
}

/// A regression: if the client closed its connection, the audit log had no entry for its command.
#[test]
fn a_command_is_logged_even_if_its_client_closes_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    fs::write(&file, CONFIGURATION.replace("sip:example.com", "sip:127.0.0.1:9")).unwrap();
    let (config, keys) = (load(&file), Secret::of([1; 32]));
    let Process { group, clock, commands, admin, told, .. } = Process::start(&config, &keys);
    let _idle = shard::joined(&group, clock, Stop::new(), &commands, Pool::new());
    let mut client = TcpStream::connect(admin.address()).unwrap();
    let head = "PUT /backends/127.0.0.1:9/disable HTTP/1.1\r\nHost: localhost\r\n\
                Content-Length: 0\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    // No shard runs, so no response is sent before the client closes the connection.
    std::thread::sleep(Duration::from_millis(200));
    drop(client);
    let entry = told.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!((&*entry.asked.what, entry.outcome), ("disable 127.0.0.1:9", Outcome::Pending));
}
