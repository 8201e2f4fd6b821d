//! Tests that the files of `docs/cookbook` are valid, and that `docs/cookbook.md` quotes them.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_server::config::Config;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(docs().join("cookbook")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn each_configuration_of_the_cookbook_is_valid_without_a_warning() {
    let tidegate = files().into_iter().filter(|path| path.extension().unwrap() == "toml");
    let mut checked = 0;
    for path in tidegate {
        let name = Path::new(path.file_name().unwrap());
        let config = Config::parse(name, &fs::read(&path).unwrap());
        let config = config.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        assert_eq!(config.warnings(), [""; 0], "{}", path.display());
        checked += 1;
    }
    assert!(checked >= 6, "{checked} files");
}

#[test]
fn the_cookbook_quotes_each_file_as_it_is() {
    let page = fs::read_to_string(docs().join("cookbook.md")).unwrap();
    for path in files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        // The name, a fence with its language, and the whole file.
        let quoted = page
            .split(&format!("`{name}`:\n\n```"))
            .skip(1)
            .any(|rest| rest.split_once('\n').unwrap().1.starts_with(&format!("{text}```\n")));
        assert!(quoted, "docs/cookbook.md does not quote docs/cookbook/{name} as it is");
    }
}
