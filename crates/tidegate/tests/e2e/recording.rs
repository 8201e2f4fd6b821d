//! Tests of recordings and their replay.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::stage::{Configuration, Process, Stage, Tidegate, assert_exact, run_to_end};

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// A recorded Tidegate, with a callee.
struct Recorded {
    stage: Stage,
    tidegate: Tidegate,
    file: PathBuf,
    _callee: Process,
}

impl Recorded {
    fn set_up(more: &str, arguments: &[&str]) -> Self {
        let stage = Stage::new();
        let bind = SocketAddr::new(stage.ip(), 0).to_string();
        let arguments_of_callee = ["load", "uas", "--ring", "20", "--bind", &bind];
        let mut callee = stage.start("callee", Command::new(TIDEGATE).args(arguments_of_callee));
        let address = callee.wait_for("the callee answers", |process| {
            let log = process.log();
            let line = log.lines().find_map(|line| line.strip_prefix("answering at "))?;
            line.parse().ok()
        });
        let mut configuration = Configuration::new(&stage, &[address]);
        configuration.more = more.to_owned();
        configuration.drain_seconds = 1;
        let file = stage.path("recording");
        let path = file.to_str().expect("a path of ours");
        let record = [&["--record", path], arguments].concat();
        let tidegate = Tidegate::start_with(&stage, &configuration, &record);
        Self { stage, tidegate, file, _callee: callee }
    }

    fn call(&self, rate_cps: u32, calls: u32) {
        self.begin_calls(rate_cps, calls).exit();
    }

    fn begin_calls(&self, rate_cps: u32, calls: u32) -> Process {
        let (target, bind) = (self.tidegate.address().to_string(), self.stage.ip().to_string());
        let (rate, calls) = (rate_cps.to_string(), calls.to_string());
        let load = ["load", "uac", &target, "--bind", &bind, "--rate", &rate, "--calls", &calls];
        // The machine determines the outcome of the calls. The replay must reproduce any outcome.
        self.stage.start("caller", Command::new(TIDEGATE).args(load))
    }

    fn stop(&mut self) {
        self.tidegate.stop();
        let log = self.tidegate.process().log();
        assert!(log.contains("tidegate: recorded "), "{log}");
        for failure in ["are missing in the recording", "the recording ended early"] {
            assert!(!log.contains(failure), "{log}");
        }
    }

    fn replay(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let file = self.file.to_str().expect("a path of ours");
        run_to_end(&self.stage, &[&["replay", file], arguments].concat())
    }
}

#[test]
fn a_run_with_transactions_is_replayed_exactly() {
    let mut run = Recorded::set_up("", &[]);
    run.call(300, 300);
    let metrics = run.tidegate.metrics();
    assert!(metrics.sum("recorded_inputs_total", &[]) >= 1000);
    assert_eq!(metrics.sum("unrecorded_inputs_total", &[]), 0);
    run.stop();
    let text = run.stage.path("packets.txt");
    assert_exact(run.replay(&["--dump", text.to_str().unwrap()]));
    let text = fs::read_to_string(text).unwrap();
    assert!(text.contains("\nINVITE sip:service@") && text.contains("\nSIP/2.0 100 Trying"));
}

#[test]
fn an_overloaded_server_is_replayed_exactly_and_its_calls_under_another_law() {
    let more = "[overload]\nlaw = \"pi\"\n[emulate]\noffer_us = 100\nserve_us = 1_000\n";
    let mut run = Recorded::set_up(more, &[]);
    // The load is two and a half times the capacity.
    run.call(400, 800);
    run.stop();
    let figures = run.stage.path("figures.json");
    let laws = ["--law", "occupancy", "--law", "pi", "--param", "pi.t_q=0.2"];
    let said = run.replay(&[&laws[..], &["--json", figures.to_str().unwrap()]].concat());
    assert!(said.1.contains("everything else is simulated"), "{}", said.1);
    assert_exact(said);

    let figures: serde_json::Value = serde_json::from_slice(&fs::read(figures).unwrap()).unwrap();
    assert_eq!(figures["exact"], true);
    assert_eq!(
        figures["received"]["invite"].as_u64(),
        figures["status"]["shards"][0]["session"]["arrived"].as_u64()
    );
    let rows = figures["rows"].as_array().unwrap();
    let told = |row: &serde_json::Value| (row["law"].clone(), row["how"].clone());
    let expected = [
        ("pi", "as recorded"),
        ("pi", "simulated"),
        ("occupancy", "simulated"),
        ("pi t_q=0.2", "simulated"),
    ];
    let names: Vec<_> = rows.iter().map(told).collect();
    assert_eq!(names, expected.map(|(law, how)| (law.into(), how.into())));
    for row in rows {
        assert_eq!(row["figures"]["offered"], rows[0]["figures"]["offered"]);
    }
}

#[test]
fn a_run_whose_law_was_switched_is_replayed_exactly() {
    let more = "[overload]\nlaw = \"pi\"\n[emulate]\noffer_us = 100\nserve_us = 1_000\n";
    let mut run = Recorded::set_up(more, &[]);
    let mut caller = run.begin_calls(400, 800);
    for law in ["codel", "occ", "dagor", "none", "sired", "ohta", "gradient2", "aro", "none", "pi"]
    {
        for how in [&[][..], &["--shadow"]] {
            let (status, said) = run.tidegate.ctl(&run.stage, &[&["law", law], how].concat());
            assert_eq!(status, Some(0), "{said}");
        }
    }
    caller.exit();
    run.stop();
    let figures = run.stage.path("figures.json");
    assert_exact(run.replay(&["--json", figures.to_str().unwrap()]));
    let figures: serde_json::Value = serde_json::from_slice(&fs::read(figures).unwrap()).unwrap();
    assert_eq!(figures["inputs"]["commands"], 20);
}

#[test]
fn a_process_that_was_killed_is_replayed_up_to_its_last_second() {
    let mut run = Recorded::set_up("", &[]);
    run.call(300, 600);
    run.tidegate.process().kill();
    let said = run.replay(&[]);
    assert!(said.1.contains("\nsent        "), "{}", said.1);
    assert_exact(said);
}

#[test]
fn errors_in_a_file_are_reported() {
    let mut run = Recorded::set_up("", &[]);
    run.call(300, 600);
    run.stop();
    let whole = fs::read(&run.file).unwrap();

    fs::write(&run.file, &whole[..whole.len() - 1000]).unwrap();
    let (status, said) = run.replay(&[]);
    assert!(said.contains("the file is cut short at byte "), "{said}");
    assert_exact((status, said));

    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 4;
    fs::write(&run.file, changed).unwrap();
    let (status, said) = run.replay(&[]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("recording: corrupt at byte "), "{said}");

    fs::write(&run.file, "INVITE sip:a SIP/2.0\r\n").unwrap();
    let (status, said) = run.replay(&[]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("not a recording"), "{said}");

    let (status, said) = run_to_end(&run.stage, &["replay", "/nowhere"]);
    assert_eq!(status, Some(2), "{said}");
}

#[test]
fn an_overwritten_recording_is_replayed_without_claiming_to_be_exact() {
    let mut run = Recorded::set_up("", &["--record-max", "16"]);
    run.call(300, 300);
    let flood = UdpSocket::bind(SocketAddr::new(run.stage.ip(), 0)).unwrap();
    let junk = vec![b'x'; 60_000];
    // The datagrams are twice as long as the ring of the recording. A busy machine may lose some of
    // them.
    for _ in 0..40 {
        for _ in 0..20 {
            flood.send_to(&junk, run.tidegate.address()).unwrap();
        }
        // Each burst fits into one receive buffer, and the pause lets Tidegate read it.
        std::thread::sleep(Duration::from_millis(20));
    }
    run.call(300, 300);
    run.stop();
    assert!(fs::metadata(&run.file).unwrap().len() < 17 << 20);
    let (status, said) = run.replay(&[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("not exact: the beginning was overwritten"), "{said}");
    assert!(!said.contains("\nexact: "), "{said}");
}

#[test]
fn several_shards_are_not_recorded() {
    let stage = Stage::new();
    let mut configuration = Configuration::new(&stage, &["127.0.0.1:9".parse().unwrap()]);
    configuration.shards = 2;
    let file = configuration.write(&stage, "tidegate.toml");
    let recording = stage.path("recording");
    let (config, record) = (file.to_str().unwrap(), recording.to_str().unwrap());
    let (status, said) = run_to_end(&stage, &["run", "--config", config, "--record", record]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--record: a process with 2 shards cannot be recorded"), "{said}");
    assert!(said.contains("help: record with `[server] shards = 1`"), "{said}");
    assert!(!recording.exists());
}
