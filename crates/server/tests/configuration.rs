//! Tests of invalid configurations, which are rejected with place and remedy, and of valid ones.
//!
//! The expected diagnostics of `broken/NAME.toml` are in `broken/NAME.txt`. `TIDEGATE_BLESS=1`
//! rewrites these files. Read the changes before you commit them.

#[path = "../../world/tests/committed/mod.rs"]
mod committed;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use committed::assert_committed;
use proptest::prelude::*;
use tidegate_balance::{Learning, RateLearning};
use tidegate_control::{
    Decide, Estimation, Occupancy, Per, Scheme, SessionCheck, ShedOrder, ThrottleKind, Weight,
    registry,
};
use tidegate_proxy::{
    Accept, Class, Disposal, Excess, Flood, Health, Mode, Overload, Probe, Queueing, RuleTarget,
    Senders, SourceLimit, SourceWeight, Sources,
};
use tidegate_server::config::{Config, Selection};
use tidegate_server::key::Rotation;
use tidegate_world::Transport;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn parse(path: &Path) -> Result<Config, String> {
    let name = Path::new(path.file_name().unwrap());
    Config::parse(name, &fs::read(path).unwrap()).map_err(|diagnostics| diagnostics.to_string())
}

/// RFC 3261 §16.1: "Any request that is forwarded to more than one location MUST be handled
/// statefully."
#[test]
fn each_broken_configuration_brings_its_diagnostics() {
    for path in files("broken") {
        let shown = parse(&path).expect_err(&format!("{} is right", path.display()));
        assert_committed(path.with_extension("txt"), &shown, None);
        assert!(shown.matches("help: ").count() >= 1, "{} names no remedy", path.display());
    }
}

#[test]
fn the_health_of_a_pool_is_read_as_it_is_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/good/health.toml");
    let config = parse(&path).unwrap_or_else(|wrong| panic!("{wrong}"));
    let ms = Duration::from_millis;
    let probe = Probe {
        interval: ms(500),
        timeout: ms(250),
        jitter: 0.0,
        fall: 2,
        rise: 1,
        accept: Accept::Only(vec![200, 404]),
        from: Some("sip:probe@example.com".to_owned()),
    };
    let health = Health {
        probe: Some(probe),
        error_limit: 5,
        eject_max: 0.25,
        retry_after_max: Some(ms(7_000)),
        slow_start: ms(30_000),
    };
    let shown = config.to_string();
    let lines = "  pool     app: tlwl, transaction, 2 back ends, backup spare
             probed every 500ms with a timeout of 250ms; down after 2 failures, up after 1 responses
             127.0.0.1:5070";
    assert!(shown.contains(lines), "{shown}");
    let [app, spare] = &config.pool[..] else { panic!() };
    assert_eq!((&app.health, app.backup.as_deref()), (&health, Some("spare")));
    assert_eq!(app.backends.iter().map(|b| b.priority).collect::<Vec<_>>(), [0, 1]);
    // Keys that are missing in the file have the defaults of the proxy.
    assert_eq!((&spare.health, &spare.backup), (&Health::default(), &None));
}

#[test]
fn limits_are_read_as_they_are_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/good/limits.toml");
    let config = parse(&path).unwrap_or_else(|wrong| panic!("{wrong}"));
    let [app, asked, plain] = [0, 1, 2].map(|index| &config.pool[index]);
    let limits = |backend: usize| {
        let backend = &app.backends[backend];
        (backend.calls_max, backend.cps_max)
    };
    assert_eq!([limits(0), limits(1)], [(Some(2000), Some(12.5)), (None, None)]);
    let interval = Duration::from_millis(100);
    let learning = |rate| Learning { rate, window: None };
    let expected = RateLearning { interval, decrease: 0.8, ..RateLearning::default() };
    assert_eq!(
        [app, asked, plain].map(|pool| pool.learning),
        [Some(expected), Some(RateLearning::default()), None].map(learning)
    );
    let pauses = [app, asked, plain].map(|pool| pool.health.retry_after_max);
    assert_eq!(pauses, [None, Some(Duration::from_secs(60)), None]);
    let shown = config.to_string();
    assert!(shown.contains("weight 1, at most 2000 calls, at most 12.5 requests/s\n"), "{shown}");
    let learned = "rate limits learned from rejections every 100ms, at least 1 requests/s\n";
    assert!(shown.contains(learned), "{shown}");
    assert_eq!(shown.matches("rate limits learned").count(), 2);
}

#[test]
fn users_are_stored_in_the_form_that_look_ups_use() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/good/users.toml");
    let config = parse(&path).unwrap_or_else(|wrong| panic!("{wrong}"));
    let [alice, bob] = &config.user[..] else { panic!() };
    assert_eq!(*alice.aor, *b"sip:alice@example.com");
    assert_eq!(alice.contacts, ["sip:alice@10.0.0.7:5062;ob", "sip:desk.example.com"]);
    assert_eq!((&*bob.aor, bob.contacts.len()), (&b"sip:Bob@example.com"[..], 0));
    assert_eq!(config.route[0].to, RuleTarget::Users);
    let shown = config.to_string();
    assert!(shown.contains("for example.com to the user in its Request-URI\n"), "{shown}");
    assert!(shown.contains("  users    2 users\n"), "{shown}");
}

#[test]
fn right_configurations_are_read() {
    for path in files("good") {
        if let Err(shown) = parse(&path) {
            panic!("{shown}");
        }
    }
}

/// A listener for WebSockets reaches no back ends, so the file has another listener. Origins have
/// the form in which browsers send them.
#[test]
fn listeners_for_websockets_are_read() {
    let config = parse(&files("good")[0].with_file_name("websockets.toml")).unwrap();
    assert_eq!(config.listen[0].transport, Transport::Wss);
    let origins = ["https://phone.example.com", "http://[::1]:8080"].map(ToOwned::to_owned);
    assert_eq!(config.listen[0].origins.as_deref(), Some(&origins[..]));
    assert!(config.to_string().contains("1 back end over tcp"), "{config}");
}

#[test]
fn sources_of_new_work_are_read() {
    let config = parse(&files("good")[0].with_file_name("sources.toml")).unwrap();
    let Overload { gate, sources, retry_after, .. } = &config.overload;
    assert_eq!(*retry_after, Some((5, 15)));
    assert_eq!((gate.sources.fair, gate.sources.sources_max), (true, 512));
    let net = |text: &str| text.parse().unwrap();
    let limit = |from, rate_cps, burst, per, then| SourceLimit { from, rate_cps, burst, per, then };
    let ban = Excess::Ban(Duration::from_secs(600));
    let limits = [
        limit(net("192.0.2.7/32"), 20.0, 5, Per::Source, Excess::Reject),
        limit(net("192.0.2.0/24"), 0.5, 10, Per::Limit, Excess::Drop),
        limit(net("2001:db8::/32"), 7.0, 10, Per::Source, ban),
    ];
    assert_eq!(sources.limits, limits);
    let weights = [SourceWeight { from: net("198.51.100.0/24"), weight: 1000 }];
    assert_eq!(sources.weights, weights);
    let flood = Flood { above_cps: 500, after_s: 3, ban: Duration::from_secs(60) };
    assert_eq!(sources.flood, Some(flood));
    assert_eq!((&sources.never_ban[..], sources.bans_max), (&[net("198.51.100.0/24")][..], 64));
    let priority = sources.priority.as_ref().unwrap();
    assert_eq!((&priority.from[..], priority.rate_cps), (&[net("198.51.100.3/32")][..], 2.5));
    assert!(priority.emergency);
    let values = ["dsn.priority", "drsn.priority", "q735.3", "ets.4", "wps.4"];
    assert_eq!(priority.values.texts(), values);
}

#[test]
fn policies_and_their_parameters_are_read() {
    let config = parse(&files("good")[0].with_file_name("policies.toml")).unwrap();
    let expected = [
        ("tlwl", &[("invite", 2.0), ("register", 0.5), ("learned", 1.0)][..]),
        ("p2c", &[("choices", 3.0)]),
        ("tlwl", &[]),
    ];
    for (pool, (name, given)) in config.pool.iter().zip(expected) {
        let values = tidegate_balance::registry::find(name).unwrap().values(given).unwrap();
        assert_eq!(pool.policy, Selection::One(values), "{}", pool.name);
    }
}

#[test]
fn overload_control_and_an_emulated_processor_are_read() {
    let config = parse(&files("good")[0].with_file_name("overload.toml")).unwrap();
    let Overload { gate, queueing, disposal, reinvites, sources, .. } = &config.overload;
    assert_eq!((config.pool[0].mode, config.overload.stateful_max), (Mode::Adaptive, 0.7));
    assert_eq!(*sources, Sources::default());
    assert!(*reinvites);
    let order = vec![Class::Register as u8, Class::Provisional as u8];
    assert_eq!(gate.scheme, Scheme::Multi(ShedOrder { order, weight: Weight::Count }));
    assert_eq!((*queueing, *disposal), (Queueing::Fifo, Disposal::Drop));
    assert_eq!(gate.decide, Decide::Service);
    assert_eq!((gate.throttle, gate.burst), (ThrottleKind::TokenBucket, 9));
    assert_eq!(gate.occupancy, Occupancy::Cpu);
    assert_eq!((gate.sticky, gate.memory_max), (false, 5000));
    let sessions = Estimation {
        check: SessionCheck::Full,
        end: Some(Class::Bye as u8),
        interval: Duration::from_millis(50),
        weight: 0.5,
        rate_cps: 7.5,
        rate_min_cps: 0.25,
    };
    assert_eq!(gate.sessions, sessions);
    let given = registry::find("pi").unwrap().values(&[("c_t", 0.8), ("k_pc", 3.0)]).unwrap();
    assert_eq!(gate.law, given);
    let shadow = registry::find("ohta").unwrap().values(&[("hi_wm", 500.0)]).unwrap();
    assert_eq!(gate.shadow, Some(shadow));

    let emulate = config.emulate.unwrap();
    let us = |cost: &[Duration], class: Class| cost[class as usize].as_secs_f64() * 1e6;
    assert_eq!(us(&emulate.offer, Class::Bye), 100.0);
    assert_eq!(us(&emulate.serve, Class::Bye), 700.0);
    assert_eq!(us(&emulate.serve, Class::Invite), 1250.5);
    assert_eq!(us(&emulate.serve_stateless.unwrap(), Class::Invite), 400.0);
    assert_eq!(us(&emulate.reject, Class::Invite), 0.0);
    assert_eq!(emulate.socket_max, 500);

    let smallest = parse(&files("good")[0].with_file_name("smallest.toml")).unwrap();
    assert_eq!((smallest.overload.gate.law.entry().name, smallest.emulate), ("tide", None));
}

#[test]
fn the_smallest_configuration_means_what_the_reference_says() {
    let config = parse(&files("good")[0].with_file_name("smallest.toml")).unwrap();
    assert_eq!(config.server.shards, 1);
    assert_eq!(config.server.drain.as_secs(), 35);
    assert_eq!(config.server.coalesce.as_micros(), 500);
    assert_eq!(config.server.timer_slack.as_micros(), 10_000);
    assert_eq!((config.server.gso, config.server.name), (true, None));
    assert_eq!(config.server.state_dir, None);
    assert_eq!(config.server.rotation, Rotation { every: None, settle: Duration::from_secs(60) });
    assert_eq!(config.admin.address, Some("127.0.0.1:8060".parse().unwrap()));
    assert_eq!(config.listen[0].advertise, None);
    assert!(config.listen[0].names.is_empty());
    let backends = &config.pool[0].backends;
    assert_eq!(backends[1].name, "127.0.0.1:5071");
    assert_eq!(backends[1].endpoint.address(), Some("127.0.0.1:5071".parse().unwrap()));
    assert_eq!(backends[1].weight, 1);
    let [route] = &config.route[..] else { panic!("{:?}", config.route) };
    assert_eq!((route.from, route.to), (Senders::Any, RuleTarget::Pool(0)));
    assert!(route.methods.is_empty() && route.domains.is_empty());
}

#[test]
fn every_key_of_the_full_configuration_is_read() {
    let config = parse(&files("good")[0].with_file_name("full.toml")).unwrap();
    assert_eq!(
        config.to_string(),
        "  listen   udp 0.0.0.0:5060, advertised as sip.example.com:5060, 3 further names, trusts 2 \
         networks
  listen   udp [2001:db8::1]:5060, shared with other hosts
  listen   udp [2001:db8::2]:5060
  pool     app: cjsq, stateless, 2 back ends
             192.0.2.10:5060 (app-1), weight 1
             [2001:db8::10]:5062, weight 3
  pool     message: fork, transaction, 1 back end
             voicemail.example.com:5060, weight 1
  route    from trusted peers to its Request-URI
  route    from 198.51.100.0/24, MESSAGE, OPTIONS, for example.com, [2001:db8::5] to message
  route    from all senders except back ends to app
  overload tide
  admin    off
  server   2 shards
  set      [server] state_dir = \"/var/lib/tidegate\", key_rotate_h = 24, key_settle_s = 120, \
         drain_seconds = 5, calls_max = 1000, transactions_max = 2000, message_memory_max_mb = 64, \
         amplification_max = 5, call_idle_seconds = 60, queue_max = 256, backend_pause_seconds = 0, \
         coalesce_us = 0, timer_slack_us = 250, gso = false, name = \"edge\"
  set      [admin] hosts = [\"sip1.example.com\", \"sip2\"], rejections_per_second = 0, \
         rejections_kept = 7
  set      [resolver] servers = [\"192.0.2.53:53\", \"[2001:db8::53]:5353\"]"
    );
    let name_servers = ["192.0.2.53:53", "[2001:db8::53]:5353"];
    assert_eq!(config.name_servers, name_servers.map(|at| at.parse().unwrap()));
    assert!(config.has_names());
    assert_eq!(config.admin.hosts, ["sip1.example.com", "sip2"]);
    assert_eq!((config.admin.rejections_per_second, config.admin.rejections_kept), (0, 7));
    assert_eq!(config.server.calls_max, 1000);
    assert_eq!(config.server.transactions_max, 2000);
    assert_eq!(config.server.message_memory_max, Some(64 << 20));
    assert_eq!(config.server.amplification_max, 5);
    assert_eq!(config.server.call_idle.as_secs(), 60);
    assert_eq!(config.server.queue_max, 256);
    assert_eq!(config.server.backend_pause.as_secs(), 0);
    assert_eq!(config.server.coalesce.as_micros(), 0);
    assert_eq!(config.server.timer_slack.as_micros(), 250);
    assert_eq!((config.server.gso, config.server.name.as_deref()), (false, Some("edge")));
    assert_eq!(config.server.drain.as_secs(), 5);
    let (every, settle) = (Some(Duration::from_secs(24 * 3600)), Duration::from_secs(120));
    assert_eq!(config.server.rotation, Rotation { every, settle });
    assert_eq!(config.server.state_dir, Some(PathBuf::from("/var/lib/tidegate")));
    let message = &config.pool[1];
    assert_eq!((message.failover_after.as_millis(), message.tries_max), (2000, 5));
    assert_eq!(message.backends[0].q, 0.25);
    assert_eq!(config.listen[0].receive_buffer, 65536);
    assert_eq!(config.listen[0].names, ["example.com", "203.0.113.10", "[2001:db8::9]"]);
    assert_eq!(config.listen[0].trust[1], "203.0.113.7/32".parse().unwrap());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let shown = Config::load(Path::new("/nonexistent/tidegate.toml")).unwrap_err().to_string();
    assert!(shown.contains("No such file or directory"), "{shown}");
    assert!(shown.contains("--> /nonexistent/tidegate.toml"), "{shown}");
    // A folder can be opened but not read. An endless file must not be read to its end.
    assert!(Config::load(Path::new("/")).unwrap_err().to_string().contains("Is a directory"));
    assert!(Config::load(Path::new("/dev/zero")).unwrap_err().to_string().contains("32768 KiB"));
}

/// Generates parts of configurations, so that random files are not rejected at the first line.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "[[listen]]\n",
        "[listen]\n",
        "[[pool]]\n",
        "[[pool.backend]]\n",
        "[pool.limit]\n",
        "[server]\n",
        "[admin]\n",
        "[[route]]\n",
        "[overload]\n",
        "transport = ",
        "address = ",
        "advertise = ",
        "names = ",
        "trust = ",
        "uri = ",
        "weight = ",
        "name = ",
        "to = ",
        "from = ",
        "method = ",
        "shards = ",
        "\"udp\"\n",
        "\"127.0.0.1:5060\"\n",
        "\"[::]:5060\"\n",
        "\"sip:127.0.0.1:5060\"\n",
        "\"app\"\n",
        "[]\n",
        "[\"a\", 1]\n",
        "{ x = 1 }\n",
        "nan\n",
        "99999999999999999999999999999999999999999999\n",
        "-1\n",
        "true\n",
        "'",
        "\"\"\"",
        "\\u",
        "listen.address = 1\n",
        "pool = [[]]\n",
        "listen = []\n",
        "\r",
        "\u{1b}",
        "é",
        "\t",
        "#",
        "1979-05-27\n",
        "a.b.c = 1\n",
        "\u{feff}",
        "\0",
    ];
    prop_oneof![8 => prop::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => ".{0,8}"]
}

fn shown_or_read(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Err(diagnostics) = Config::parse(Path::new("random.toml"), bytes) {
        prop_assert!(diagnostics.count() > 0);
        prop_assert!(diagnostics.render(true).contains("help"));
        let plain = diagnostics.render(false);
        prop_assert!(plain.contains("random.toml"));
        prop_assert!(
            !plain.contains('\u{1b}'),
            "an escape sequence reaches the terminal: {plain:?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        shown_or_read(&bytes)?;
    }

    #[test]
    fn any_pieces_are_read_or_rejected(pieces in prop::collection::vec(piece(), 0..24)) {
        shown_or_read(pieces.concat().as_bytes())?;
    }

    #[test]
    fn a_right_configuration_with_one_byte_changed_is_read_or_rejected(
        at in 0usize..2000, byte in any::<u8>()
    ) {
        let mut bytes = include_bytes!("good/full.toml").to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        shown_or_read(&bytes)?;
    }
}
