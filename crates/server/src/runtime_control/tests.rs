//! Tests of reloads that the shards do not execute.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crossbeam_channel::bounded;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use tidegate_balance::EndpointAddress;
use tidegate_world::SrvRecord;

use super::*;
use crate::key;
use crate::metrics::{Metrics, collect};
use crate::pools::pool_specs;
use crate::testing::{SMALL, assemble, load};

/// Writes a configuration with TLS into `dir`, and returns its path. It has one back end, with this
/// URI, in a pool with this transport.
fn write_secured(dir: &Path, transport: &str, uri: &str) -> PathBuf {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["example.com".to_owned()]).unwrap();
    let [pem, file] = ["all.pem", "tidegate.toml"].map(|name| dir.join(name));
    fs::write(&pem, cert.pem() + &signing_key.serialize_pem()).unwrap();
    let pem = pem.display();
    let text = format!(
        "[[listen]]\ntransport = \"tls\"\naddress = \"127.0.0.1:5061\"\n\
         certificate = \"{pem}\"\nprivate_key = \"{pem}\"\n\
         [[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:5060\"\n\
         [[pool]]\nname = \"app\"\ntransport = \"{transport}\"\n\
         [[pool.backend]]\nuri = \"{uri}\"\n"
    );
    fs::write(&file, text).unwrap();
    file
}

/// In this test no shard runs, so no command can be sent.
#[test]
fn a_reload_that_cannot_be_sent_does_not_change_the_tls_settings() {
    let dir = tempfile::tempdir().unwrap();
    let file = write_secured(dir.path(), "tls", "sip:127.0.0.1:9");
    let (config, files, _) = Config::load(&file).unwrap_or_else(|wrong| panic!("{wrong}"));
    let assembly = assemble(&config);
    let tls = Tls::new(files);
    let control = assembly.runtime_control(CommandSender::to(1)).securing(tls.clone());
    // The settings toward the back end of the process would be remembered.
    let mut others = pool_specs(&config);
    let other = SocketAddr::from(([127, 0, 0, 1], 10));
    others[0].backends[0].endpoint_address = EndpointAddress::Address(other);
    let peers = tls.peers(BackendRegistry::new(&others));
    assert!(peers(other).is_some());
    write_secured(dir.path(), "tcp", "sip:127.0.0.1:9");
    let reloaded = control.reload();
    assert!(matches!(reloaded, Err(ControlError::CommandError(_))), "{reloaded:?}");
    assert!(peers(other).is_some());
}

/// A regression: after a reload had changed the transport of the pool to TCP, the BYE of an
/// existing call could not reach the back end over TLS.
#[test]
fn a_reload_remembers_the_tls_settings_toward_its_former_back_ends() {
    let dir = tempfile::tempdir().unwrap();
    let file = write_secured(dir.path(), "tls", "sip:127.0.0.1:9");
    let (config, files, _) = Config::load(&file).unwrap_or_else(|wrong| panic!("{wrong}"));
    let assembly = assemble(&config);
    let tls = Tls::new(files);
    let control = assembly.runtime_control(CommandSender::to(0)).securing(tls.clone());
    // No shard gets the command, so the test counts it.
    assembly.counters()[0].proxy.in_force.commands.set(1);
    write_secured(dir.path(), "tcp", "sip:127.0.0.1:9");
    assert!(control.reload().unwrap());
    let peers = tls.peers(assembly.registry().clone());
    assert!(peers("127.0.0.1:9".parse().unwrap()).is_some());
}

/// A regression: a BYE could not reach a server over TLS that the DNS no longer listed.
#[test]
fn a_change_of_the_dns_keeps_the_tls_settings_toward_former_servers() {
    let dir = tempfile::tempdir().unwrap();
    let file = write_secured(dir.path(), "tls", "sip:example.com");
    // With two entries, the pool has no single name for all servers.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + "[[pool.backend]]\nuri = \"sip:other.example\"\n").unwrap();
    let (config, files, _) = Config::load(&file).unwrap_or_else(|wrong| panic!("{wrong}"));
    let assembly = assemble(&config);
    let (tls, registry) = (Tls::new(files), assembly.registry());
    let control = assembly.runtime_control(CommandSender::to(0)).securing(tls.clone());
    for (command, target, last) in [(1, "a.example.com.", 1), (2, "b.example.com.", 2)] {
        let server = SrvRecord { priority: 0, weight: 0, port: 9, target: target.into() };
        registry.services()[0].set_servers([server].into());
        assert_eq!(control.follow_domains(Timestamp::ZERO).unwrap().len(), 1);
        let found = Found::of(&registry.services());
        registry.enlist(Timestamp::ZERO, command, &pool_specs(&found.expand(&config)));
        registry.pools()[0].backends()[0].move_to([127, 0, 0, last].into());
        assembly.counters()[0].proxy.in_force.commands.set(command);
    }
    let peer = tls.peers(registry.clone())("127.0.0.1:9".parse().unwrap());
    // RFC 5922 §4: the identity of a server is its domain.
    assert_eq!(peer.map(|peer| peer.name), Some(ServerName::try_from("example.com").unwrap()));
}

/// A regression: the back end counted as removed although no shard had the new configuration. After
/// a restart, requests of its calls got 481.
#[test]
fn a_back_end_of_a_reload_that_cannot_be_sent_does_not_count_as_removed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    let write = |ports: &[u16]| {
        let backend = |port: &u16| format!("[[pool.backend]]\nuri = \"sip:127.0.0.1:{port}\"\n");
        let text = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n\
                    [[pool]]\nname = \"app\"\n";
        let backends: String = ports.iter().map(backend).collect();
        fs::write(&file, text.to_owned() + &backends).unwrap();
    };
    write(&[9, 10]);
    let (config, ..) = Config::load(&file).unwrap_or_else(|wrong| panic!("{wrong}"));
    let assembly = assemble(&config);
    let keep = Duration::from_secs(100);
    let removed = RemovedBackends::new(dir.path(), keep);
    let control = assembly.runtime_control(CommandSender::to(1)).noting(removed.clone());
    write(&[9]);
    let reloaded = control.reload();
    assert!(matches!(reloaded, Err(ControlError::CommandError(_))), "{reloaded:?}");
    let later = key::unix_time() + keep;
    let [kept, gone] = [9, 10].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(removed.update(later.as_secs(), [kept]).unwrap(), [gone]);
}

/// Returns a configuration whose back ends are the servers of a domain.
fn with_domain() -> Config {
    let text = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n\
                [[pool]]\nname = \"app\"\n[[pool.backend]]\nuri = \"sip:example.com\"\n";
    Config::parse(Path::new("f"), text.as_bytes()).unwrap()
}

/// A regression: the new servers of a domain got no calls until the DNS changed again.
#[test]
fn servers_that_a_shard_has_no_room_for_are_sent_again() {
    let config = with_domain();
    let assembly = assemble(&config);
    // The control sends its commands to no shard. The test sets the counters of a shard.
    let control = assembly.runtime_control(CommandSender::to(0));
    let in_force = &assembly.counters()[0].proxy.in_force;
    let server = SrvRecord { priority: 0, weight: 0, port: 5060, target: "a.example.com.".into() };
    assembly.registry().services()[0].set_servers([server].into());
    let start = Timestamp::ZERO;
    let sent = |now: Timestamp| control.follow_domains(now).unwrap().len();
    assert_eq!([sent(start), sent(start)], [1, 0]);
    in_force.commands_rejected.add(1);
    in_force.last_rejected.set(1);
    assert_eq!([sent(start), sent(start + FOUND_PAUSE)], [0, 1]);
    in_force.commands.add(1);
    assert_eq!([sent(start + FOUND_PAUSE), sent(start + 2 * FOUND_PAUSE)], [0, 0]);
}

/// A regression: the log called the list of servers a configuration, and advised a restart.
#[test]
fn a_list_of_servers_that_is_too_long_for_a_command_is_reported_once() {
    let config = with_domain();
    let assembly = assemble(&config);
    let control = assembly.runtime_control(CommandSender::to(0)).recorded();
    let target = "a".repeat(200).into();
    let server = SrvRecord { priority: 0, weight: 0, port: 5060, target };
    assembly.registry().services()[0].set_servers(vec![server; 5000].into());
    let error = control.follow_domains(Timestamp::ZERO).unwrap_err();
    assert!(matches!(error, ControlError::TooManyServers { .. }), "{error}");
    assert!(control.follow_domains(Timestamp::ZERO).unwrap().is_empty());
}

/// A regression: the rejected servers counted as sent, because only the last rejected command of a
/// shard is known.
#[test]
fn servers_are_sent_again_if_a_shard_has_rejected_them_and_a_later_command() {
    let config = with_domain();
    let assembly = assemble(&config);
    let control = assembly.runtime_control(CommandSender::to(0));
    let in_force = &assembly.counters()[0].proxy.in_force;
    let find = |target: &str| {
        let server = SrvRecord { priority: 0, weight: 0, port: 5060, target: target.into() };
        assembly.registry().services()[0].set_servers([server].into());
    };
    let given = |now: Timestamp| {
        control.follow_domains(now).unwrap();
        control.wanted().given
    };
    let start = Timestamp::ZERO;
    find("a.example.com.");
    assert_eq!(given(start), 1);
    control.look_up("a call").unwrap();
    in_force.commands_rejected.add(2);
    in_force.last_rejected.set(2);
    assert_eq!([given(start), given(start + FOUND_PAUSE)], [2, 3]);
    // A shard rejects these servers and the next ones. Then the DNS lists the first ones again.
    find("b.example.com.");
    assert_eq!(given(start + FOUND_PAUSE), 4);
    find("c.example.com.");
    assert_eq!(given(start + FOUND_PAUSE), 5);
    in_force.commands.add(1);
    in_force.commands_rejected.add(2);
    in_force.last_rejected.set(5);
    find("b.example.com.");
    assert_eq!([1_u32, 2].map(|pauses| given(start + pauses * FOUND_PAUSE)), [5, 6]);
    in_force.commands.add(1);
    assert_eq!([3_u32, 4].map(|pauses| given(start + pauses * FOUND_PAUSE)), [6, 6]);
}

/// A regression: the warnings were logged even if a shard then rejected the reload.
#[test]
fn the_warnings_about_a_reloaded_configuration_are_taken_once_it_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let text = SMALL.to_owned() + "[admin]\naddress = \"0.0.0.0:8060\"\n";
    let config = load(dir.path(), &text);
    let assembly = assemble(&config);
    let control = assembly.runtime_control(CommandSender::to(0));
    let in_force = &assembly.counters()[0].proxy.in_force;
    let taken = || {
        control.settle();
        control.take_warnings()
    };
    assert!(taken().is_empty());
    control.send_reload().unwrap();
    assert!(taken().is_empty(), "the shard has not applied it");
    in_force.commands_rejected.add(1);
    in_force.last_rejected.set(1);
    assert!(taken().is_empty(), "the shard has rejected it");
    control.send_reload().unwrap();
    in_force.commands.add(1);
    let warnings = taken();
    assert!(!warnings.is_empty() && warnings == config.warnings(), "{warnings:?}");
    assert!(taken().is_empty());
}

/// A regression: if a shard rejected a reload and then servers of domains, only the servers counted
/// as rejected. The configuration of the reload counted as applied.
#[test]
fn servers_are_not_sent_before_a_reload_is_applied_or_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let config = load(dir.path(), &SMALL.replace("127.0.0.1:9", "example.com"));
    let assembly = assemble(&config);
    let control = assembly.runtime_control(CommandSender::to(0));
    let in_force = &assembly.counters()[0].proxy.in_force;
    let before = Arc::clone(&control.wanted().config);
    control.send_reload().unwrap();
    let server = SrvRecord { priority: 0, weight: 0, port: 5060, target: "a.example.com.".into() };
    assembly.registry().services()[0].set_servers([server].into());
    let given = || {
        control.settle();
        control.follow_domains(Timestamp::ZERO).unwrap();
        control.wanted().given
    };
    assert_eq!(given(), 1);
    in_force.commands_rejected.add(1);
    in_force.last_rejected.set(1);
    assert_eq!(given(), 2);
    assert!(Arc::ptr_eq(&control.wanted().config, &before), "the reload was put back");
}

/// A regression: if `systemctl reload` failed because a changed key needs a restart, no metric
/// showed the failure.
#[test]
fn a_metric_shows_whether_the_last_reload_failed() {
    let dir = tempfile::tempdir().unwrap();
    let config = load(dir.path(), SMALL);
    let assembly = assemble(&config);
    let control = Arc::new(assembly.runtime_control(CommandSender::to(0)));
    let in_force = &assembly.counters()[0].proxy.in_force;
    let mut metrics = Metrics::new();
    let reloads = Arc::clone(&control);
    collect::add_reloads(&mut metrics, move || reloads.has_reload_failed());
    let shows = |value: u64| {
        let shown = metrics.render();
        assert!(shown.contains(&format!("\ntidegate_reload_failed {value}\n")), "{shown}");
    };
    shows(0);
    load(dir.path(), &format!("[server]\nshards = 2\n{SMALL}"));
    let reloaded = control.reload();
    let is_fixed = matches!(reloaded, Err(ControlError::Rejected(command::Rejected::Restart(_))));
    assert!(is_fixed, "{reloaded:?}");
    shows(1);
    load(dir.path(), SMALL);
    in_force.commands.set(1);
    assert!(matches!(control.reload(), Ok(true)));
    shows(0);
    // A shard rejects the next reload only after the reload has returned.
    control.stop_waiting();
    assert!(matches!(control.reload(), Ok(false)));
    shows(0);
    in_force.last_rejected.set(2);
    in_force.commands_rejected.set(1);
    control.settle();
    shows(1);
}

/// A regression: if a shard rejected two reloads at once, the first operator was told that the
/// reload was done, and its configuration counted as applied. The reason is that only the last
/// rejected command of a shard is known.
#[test]
fn a_reload_waits_until_the_one_before_is_applied_or_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let config = load(dir.path(), SMALL);
    let assembly = assemble(&config);
    let control = Arc::new(assembly.runtime_control(CommandSender::to(0)));
    let in_force = &assembly.counters()[0].proxy.in_force;
    let before = Arc::clone(&control.wanted().config);
    assert_eq!(control.send_reload().unwrap(), 1);
    let (second, (result, results)) = (Arc::clone(&control), bounded(1));
    thread::spawn(move || result.send(second.reload()));
    assert!(results.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
    assert_eq!(control.wanted().given, 1);
    in_force.last_rejected.set(1);
    in_force.commands_rejected.set(1);
    let is_sent = (0..10_000).any(|_| {
        assert!(results.recv_timeout(Duration::from_millis(1)).is_err());
        control.wanted().given == 2
    });
    assert!(is_sent);
    in_force.last_rejected.set(2);
    in_force.commands_rejected.set(2);
    let second = results.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(second, Err(ControlError::NoRoom)), "{second:?}");
    assert!(Arc::ptr_eq(&control.wanted().config, &before), "both were put back");
    in_force.commands.set(1);
    assert!(matches!(control.reload(), Ok(true)));
}

#[test]
fn a_reload_is_not_sent_while_a_shard_has_not_heard_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let config = load(dir.path(), SMALL);
    let assembly = assemble(&config);
    let control = assembly.runtime_control(CommandSender::to(0));
    // The reload returns without waiting, as it does after `APPLY_WAIT`.
    control.stop_waiting();
    assert!(matches!(control.reload(), Ok(false)));
    let second = control.reload();
    assert!(matches!(second, Err(ControlError::Unsettled)), "{second:?}");
    assert_eq!(control.wanted().given, 1);
    assembly.counters()[0].proxy.in_force.commands.set(1);
    assert!(matches!(control.reload(), Ok(false)));
}

/// Replaces a file with a pipe. A reader of the pipe waits until a writer opens the pipe.
fn make_pipe(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A regression: the operator was told that the reload was done if a shard rejected another command
/// while the state directory was slow. The reason is that only the last rejected command of a shard
/// is known.
#[test]
fn a_rejected_reload_is_reported_even_if_a_later_command_is_rejected_too() {
    let dir = tempfile::tempdir().unwrap();
    let config = load(dir.path(), SMALL);
    let assembly = assemble(&config);
    let removed = RemovedBackends::new(dir.path(), Duration::from_secs(100));
    let pipe = removed.path().to_owned();
    let control = Arc::new(assembly.runtime_control(CommandSender::to(0)).noting(removed));
    let in_force = &assembly.counters()[0].proxy.in_force;
    let (reloading, (reloaded, reloads)) = (Arc::clone(&control), bounded(1));
    thread::spawn(move || reloaded.send(reloading.reload()));
    let is_met = |condition: &dyn Fn() -> bool| {
        (0..10_000).any(|_| {
            assert!(reloads.recv_timeout(Duration::from_millis(1)).is_err());
            condition()
        })
    };
    assert!(is_met(&|| control.wanted().given == 1));
    // The shard rejects the reload. Writing the file then blocks.
    make_pipe(&pipe);
    in_force.last_rejected.set(1);
    in_force.commands_rejected.set(1);
    assert!(is_met(&|| control.wanted().replaced.is_none()));
    in_force.last_rejected.set(2);
    in_force.commands_rejected.set(2);
    fs::write(pipe, "").unwrap();
    let reloaded = reloads.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(reloaded, Err(ControlError::NoRoom)), "{reloaded:?}");
}

/// A regression: all commands, and the signals to stop, waited for the state directory.
#[test]
fn other_commands_do_not_wait_for_the_files_of_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let config = load(dir.path(), SMALL);
    let assembly = assemble(&config);
    let removed = RemovedBackends::new(dir.path(), Duration::from_secs(100));
    let pipe = removed.path().to_owned();
    make_pipe(&pipe);
    let control = Arc::new(assembly.runtime_control(CommandSender::to(0)).noting(removed));
    assembly.counters()[0].proxy.in_force.commands.set(2);
    let (reloading, (reloaded, reloads)) = (Arc::clone(&control), bounded(1));
    thread::spawn(move || reloaded.send(reloading.reload()));
    assert!(reloads.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
    let (other, (sent, sends)) = (Arc::clone(&control), bounded(1));
    thread::spawn(move || sent.send((other.look_up("a call").is_ok(), other.take_warnings())));
    let is_sent = sends.recv_timeout(Duration::from_secs(30));
    fs::write(pipe, "").unwrap();
    assert_eq!(is_sent, Ok((true, Vec::new())));
    let reloaded = reloads.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(reloaded, Ok(true)), "{reloaded:?}");
}
