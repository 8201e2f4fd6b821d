//! The schema that `tidegate config schema` prints, tried with a validator (Python's `jsonschema`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python program whose arguments are a schema and paths of files. It prints the paths of the
/// files that the schema rejects.
const REJECTED: &str = "
import json, sys, tomllib
from jsonschema import Draft7Validator
schema = json.load(open(sys.argv[1]))
Draft7Validator.check_schema(schema)
validator = Draft7Validator(schema)
for path in sys.argv[2:]:
    try:
        with open(path, 'rb') as file:
            content = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        continue
    if not validator.is_valid(content):
        print(path)
";

/// Broken configurations that a schema accepts: a file that is not TOML, a text that breaks its
/// grammar, keys or tables that contradict each other, and names that are used twice or not
/// defined.
#[rustfmt::skip]
const ACCEPTED: &[&str] = &[
    // The file is not TOML, so the validator gets nothing.
    "duplicate-key.toml", "not-utf8.toml", "syntax.toml",
    // A text breaks its grammar, such as an address, a host name or a method.
    "names.toml", "routes.toml", "wildcard.toml",
    // A key contradicts another key.
    "backups.toml", "connections.toml", "fork-limits-elsewhere.toml", "fork-many.toml",
    "fork-priority.toml", "law.toml", "limit-of-a-later-pool.toml", "limits-that-do-not-fit.toml",
    "no-priority.toml", "pad.toml",
    "sharing-pools.toml", "sharing.toml", "tls.toml",
    // A name is used twice, is not defined, or is not reached.
    "duplicates.toml", "families.toml", "large-requests-elsewhere.toml",
    "large-requests-shared.toml", "large-requests-without-tcp.toml",
    "large-requests-without-udp.toml", "listeners.toml",
    "loop.toml", "no-route.toml", "transport-without-listener.toml", "two-pools.toml", "unknown-pool.toml",
    "unreachable-limits.toml",
    "unreachable-routes.toml", "users-missing.toml", "websockets-alone.toml",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn configurations(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

/// Returns the names of the files that the schema rejects.
fn rejected(paths: &[PathBuf]) -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.json");
    let mut tidegate = assert_cmd::Command::cargo_bin("tidegate").unwrap();
    let printed = tidegate.args(["config", "schema"]).output().unwrap();
    assert!(printed.status.success());
    fs::write(&schema, printed.stdout).unwrap();
    let output =
        Command::new("python3").args(["-c", REJECTED]).arg(&schema).args(paths).output().unwrap();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{wrong}");
    let name = |path: &str| Path::new(path).file_name().unwrap().to_string_lossy().into_owned();
    String::from_utf8(output.stdout).unwrap().lines().map(name).collect()
}

#[test]
fn every_example_is_valid() {
    let mut examples = vec![repository().join("packaging/tidegate.toml")];
    examples.extend(configurations("docs/cookbook"));
    examples.extend(configurations("crates/server/tests/good"));
    let folder = tempfile::tempdir().unwrap();
    for page in ["README.md", "docs/configuration.md"] {
        let text = fs::read_to_string(repository().join(page)).unwrap();
        for (number, block) in text.split("```toml\n").skip(1).enumerate() {
            let path = folder.path().join(format!("{}-{number}.toml", page.replace('/', "-")));
            fs::write(&path, block.split("```").next().unwrap()).unwrap();
            examples.push(path);
        }
    }
    assert!(examples.len() > 15, "{}", examples.len());
    assert_eq!(rejected(&examples), BTreeSet::new());
}

#[test]
fn a_schema_rejects_invalid_configurations_as_far_as_it_can() {
    let broken = configurations("crates/server/tests/broken");
    let names = broken.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    let accepted: BTreeSet<_> =
        names.collect::<BTreeSet<_>>().difference(&rejected(&broken)).cloned().collect();
    let expected: BTreeSet<_> = ACCEPTED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(accepted, expected);
}
