//! Tests that keys are rotated while a shard runs, and every call can still be routed.
#![allow(clippy::disallowed_methods)] // The tests wait for threads.

mod shard;

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate_io::{Clock, CommandSender, Listen, Stop, open};
use tidegate_server::ShardCounters;
use tidegate_server::assembly::Assembly;
use tidegate_server::config::Config;
use tidegate_server::key::{self, Keeper, NotKept, NotRotated, Rotation, UnixTime};
use tidegate_world::Seed;

const SETTLE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(30);

/// A shard between a caller and a back end, with two keepers that share a key file. The second
/// keeper stands for another process.
struct Running {
    caller: UdpSocket,
    backend: UdpSocket,
    counters: ShardCounters,
    keeper: Keeper,
    elsewhere: Keeper,
    began: UnixTime,
    stop: Stop,
    shard: Option<JoinHandle<()>>,
    state: tempfile::TempDir,
}

impl Running {
    fn start(every: Option<Duration>) -> Self {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let (caller, backend) = (socket(), socket());
        let text = format!(
            "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n\
             [[pool]]\nname = \"app\"\nmode = \"stateless\"\n\
             [[pool.backend]]\nuri = \"sip:{}\"\n",
            backend.local_addr().unwrap()
        );
        let config = Config::parse(Path::new("f"), text.as_bytes()).unwrap();
        let state = tempfile::tempdir().unwrap();
        let ring = key::load_or_create(state.path()).unwrap();
        let began = ring.shown(key::unix_time(), SETTLE).next().unwrap().made;
        let group = open(&Listen::new("127.0.0.1:0".parse().unwrap())).unwrap();
        caller.connect(group.local()).unwrap();
        backend.connect(group.local()).unwrap();
        let keys = ring.secret(began, SETTLE);
        let assembly = Assembly::new(&config, &keys, vec![group.local()], Seed(1));
        let (stop, commands) = (Stop::new(), CommandSender::to(1));
        let rotation = Rotation { every, settle: SETTLE };
        let keep = |commands: &CommandSender| {
            Keeper::new(state.path().to_owned(), ring.clone(), rotation, began, commands.clone())
        };
        let (keeper, elsewhere) = (keep(&commands), keep(&CommandSender::to(0)));
        let counters = assembly.counters()[0].clone();
        let shard =
            Some(shard::drive(assembly.part(0), group, Clock::start(), stop.clone(), commands));
        let running =
            Self { caller, backend, counters, keeper, elsewhere, began, stop, shard, state };
        // After a call has passed, the shard is ready for commands.
        running.call("first");
        running
    }

    /// Sends a caller's packet, and returns the packet that reaches the back end.
    fn pass(&self, text: &str) -> String {
        self.caller.send(text.as_bytes()).unwrap();
        let mut bytes = [0; 4096];
        let length = self.backend.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// Starts a call. Returns its Record-Route.
    fn call(&self, id: &str) -> String {
        let invite = self.pass(&self.request("INVITE", id, "", ""));
        assert!(invite.starts_with("INVITE "), "{invite}");
        let routes = invite.lines().find_map(|line| line.strip_prefix("Record-Route: "));
        routes.unwrap().to_owned()
    }

    /// Ends the call whose Record-Route was `route`.
    fn end(&self, id: &str, route: &str) {
        let bye = self.pass(&self.request("BYE", id, ";tag=b", &format!("Route: {route}\r\n")));
        assert!(bye.starts_with("BYE "), "{bye}");
    }

    fn request(&self, method: &str, id: &str, tag: &str, headers: &str) -> String {
        let (us, there) = (self.caller.local_addr().unwrap(), self.caller.peer_addr().unwrap());
        format!(
            "{method} sip:bob@{there} SIP/2.0\r\nVia: SIP/2.0/UDP {us};branch=z9hG4bK{id}{method}\r\n\
             From: <sip:a@{us}>;tag=a\r\nTo: <sip:bob@{there}>{tag}\r\nCall-ID: {id}\r\n\
             CSeq: 1 {method}\r\nContact: <sip:a@{us}>\r\nMax-Forwards: 70\r\n{headers}\
             Content-Length: 0\r\n\r\n"
        )
    }

    /// Makes the process check the key file as if the time `after` had passed since its start.
    /// Waits until the shard makes tokens with the key of this version.
    fn look(&self, after: Duration, version: u64) {
        let deadline = Instant::now() + PATIENCE;
        self.keeper.look(self.began + after);
        while self.counters.proxy.in_force.key_version.get() != version {
            assert!(Instant::now() < deadline, "{}", self.keeper.shown(self.began + after));
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        let ended = self.shard.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

#[test]
fn a_call_outlives_the_rotation_that_another_process_made() {
    let running = Running::start(None);
    let old = running.call("old");
    running.elsewhere.rotate(running.began).unwrap();
    running.look(Duration::ZERO, 1);
    let same = running.call("old");
    assert_eq!(same, old, "the new key is known, and not used");

    running.look(SETTLE, 2);
    let new = running.call("new");
    // The second byte of a token is the mark of its key, so these tokens have different keys.
    assert_ne!(new.split('@').next().unwrap()[..8], old.split('@').next().unwrap()[..8]);
    running.end("old", &old);
    running.end("new", &new);
}

#[test]
fn keys_are_rotated_by_age_and_not_before_they_have_settled() {
    let hour = Duration::from_secs(3600);
    let running = Running::start(Some(hour));
    running.look(hour - Duration::from_secs(1), 1);
    assert_eq!(running.keeper.shown(running.began)["keys"].as_array().unwrap().len(), 1);
    running.look(hour, 1);
    let early = running.keeper.rotate(running.began + hour);
    assert!(matches!(early, Err(NotKept::NotRotated(NotRotated::Settling(2, _)))), "{early:?}");
    let shown = running.keeper.shown(running.began + hour);
    assert_eq!(shown["keys"][0]["role"], "next");
    assert_eq!((&shown["keys"][1]["role"], &shown["in_use"]), (&"current".into(), &1.into()));
    running.look(hour + SETTLE, 2);
}

#[test]
fn a_new_base_key_needs_a_restart_but_new_token_keys_do_not() {
    let running = Running::start(Some(Duration::from_secs(7200)));
    let path = running.state.path().join(key::FILE_NAME);
    let shown = running.keeper.shown(running.began);
    assert_eq!((&shown["needs_restart"], &shown["settle_s"]), (&false.into(), &60.into()));
    assert_eq!(shown["rotated_every_s"], 7200);
    let old = running.call("old");

    let text = std::fs::read_to_string(&path).unwrap();
    let (_, keys) = text.split_once('\n').unwrap();
    let second = running.began.as_secs();
    let next = format!("base {}\n2 {second} {}\n{keys}", "0b".repeat(32), "0c".repeat(32));
    std::fs::write(&path, next).unwrap();
    running.look(SETTLE, 2);
    let shown = running.keeper.shown(running.began + SETTLE);
    assert_eq!(shown["needs_restart"], true);
    assert_eq!(
        (&shown["keys"][1]["made"], &shown["keys"][1]["age_s"]),
        (&second.into(), &60.into())
    );
    assert_ne!(running.call("new"), old);
    running.end("old", &old);
}

#[test]
fn an_invalid_file_changes_nothing_and_is_reported() {
    let running = Running::start(None);
    let path = running.state.path().join(key::FILE_NAME);
    let right = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, "nonsense\n").unwrap();
    running.look(SETTLE, 1);
    let shown = running.keeper.shown(running.began);
    assert!(shown["trouble"].as_str().unwrap().contains("not a key"), "{shown}");
    let line = running.keeper.changed_trouble().unwrap();
    assert!(line.starts_with("keys: ") && line.contains("not a key"), "{line}");
    running.look(SETTLE, 1);
    assert_eq!(running.keeper.changed_trouble(), None, "the same trouble is reported once");
    assert!(running.keeper.rotate(running.began + SETTLE).is_err());
    running.call("still");

    std::fs::write(&path, right).unwrap();
    running.look(SETTLE, 1);
    assert!(running.keeper.shown(running.began)["trouble"].is_null());
    let line = running.keeper.changed_trouble();
    assert_eq!(line.as_deref(), Some("keys: the file route.key can be used again"));
    assert_eq!(running.keeper.changed_trouble(), None);
    running.keeper.rotate(running.began + SETTLE).unwrap();
    running.look(2 * SETTLE, 2);
}

/// Returns a keeper of the keys in `state` for a process without shards.
fn keeper(state: &Path) -> Arc<Keeper> {
    let ring = key::load_or_create(state).unwrap();
    let rotation = Rotation { every: None, settle: SETTLE };
    let commands = CommandSender::to(0);
    Arc::new(Keeper::new(state.to_owned(), ring, rotation, key::unix_time(), commands))
}

#[test]
fn the_file_is_looked_at_until_the_watch_is_dropped() {
    let state = tempfile::tempdir().unwrap();
    let (keeper, elsewhere) = (keeper(state.path()), keeper(state.path()));
    let watch = keeper.watch().unwrap();
    elsewhere.rotate(key::unix_time() + SETTLE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while keeper.shown(key::unix_time())["keys"].as_array().unwrap().len() == 1 {
        assert!(Instant::now() < deadline, "nobody looked");
        thread::sleep(Duration::from_millis(10));
    }
    drop(watch);
    assert_eq!(Arc::strong_count(&keeper), 1, "its thread has ended");
}

#[test]
fn the_age_of_a_single_key_is_unknown() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join(key::FILE_NAME);
    std::fs::write(&path, "0a".repeat(32)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let shown = keeper(state.path()).shown(key::unix_time());
    let key = &shown["keys"][0];
    assert_eq!((&key["version"], &key["role"]), (&1.into(), &"current".into()));
    assert!(key["made"].is_null() && key["age_s"].is_null(), "{key}");
}
