//! Tests of `tidegate check` from a shell.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

fn tidegate(args: &[&str]) -> Output {
    Command::cargo_bin("tidegate").unwrap().args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn written(content: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, content).unwrap();
    let name = file.to_str().unwrap().to_owned();
    (folder, name)
}

const SMALLEST: &str = r#"
[[listen]]
transport = "udp"
address = "127.0.0.1:5060"

[[pool]]
name = "app"
[[pool.backend]]
uri = "sip:127.0.0.1:5070"
"#;

#[test]
fn a_valid_configuration_is_summarised() {
    let (_folder, file) = written(SMALLEST);
    let output = tidegate(&["check", &file]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(tidegate(&["check", "--config", &file]).stdout, output.stdout);
    assert_eq!(
        text(&output.stdout),
        format!(
            "{file}: ok
  listen   udp 127.0.0.1:5060
  pool     app: tlwl, transaction, 1 back end
             127.0.0.1:5070, weight 1
  route    from all senders except back ends to app
  overload tide
  admin    http://127.0.0.1:8060
  server   1 shard
"
        )
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn keys_that_are_not_at_their_defaults_are_listed() {
    let set = "[server]\nshards = 2\nqueue_max = 999\ngso = true\n[overload]\nlaw = \"occ\"\n\
               params = { rho_targ = 0.7 }\nretry_after = [5, 15]\n";
    let (_folder, file) = written(&format!("{SMALLEST}{set}"));
    let output = tidegate(&["check", &file]);
    let (_, end) = text(&output.stdout).split_once("  server   ").unwrap();
    assert_eq!(
        end,
        "2 shards
  set      [server] queue_max = 999
  set      [overload] retry_after = [5, 15]
  set      [overload.params] rho_targ = 0.7
"
    );
}

#[test]
fn an_invalid_configuration_exits_with_2_and_names_the_place() {
    let (_folder, file) = written(&SMALLEST.replace("address", "adress"));
    for command in ["check", "run"] {
        let output = tidegate(&[command, &file]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(text(&output.stdout), "");
        let shown = text(&output.stderr);
        assert!(shown.contains(&format!("--> {file}:4:1")), "{shown}");
        assert!(shown.contains("did you mean `address`?"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "colour, and no terminal: {shown:?}");
    }
}

#[test]
fn a_missing_file_and_wrong_usage_exit_with_2() {
    let missing = Path::new("/nonexistent.toml");
    let output = tidegate(&["check", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("No such file"));
    for args in [&["chekc"][..], &[], &["check", "a", "b"], &["check", "a", "--config", "b"]] {
        assert_eq!(tidegate(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn check_and_run_name_the_file_in_the_same_ways() {
    let usual = "/etc/tidegate/tidegate.toml";
    assert!(!Path::new(usual).exists(), "this machine has a configuration of its own");
    let here = "/nonexistent.toml";
    let (_folder, broken) = written(&SMALLEST.replace("address", "adress"));
    for (args, file) in [
        (&[][..], usual),
        (&[here], here),
        (&["--config", here], here),
        (&["--config", &*broken], &*broken),
    ] {
        for command in ["check", "run"] {
            let output = tidegate(&[&[command], args].concat());
            assert_eq!(output.status.code(), Some(2), "{command} {args:?}");
            assert!(text(&output.stderr).contains(file), "{command} {args:?}");
        }
    }
}

#[test]
fn the_version_is_printed() {
    let output = tidegate(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n"));
}
