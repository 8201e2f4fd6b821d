//! Compares tables of results with committed tables, for tests.

use std::fs;
use std::path::Path;

/// Checks that `text` and the committed table in `file` have the same rows, and that their numbers
/// agree to 0.02 or 5 %. Logarithms differ in their last bit from one machine to the next, so the
/// runs differ too. With `TIDEGATE_BLESS=1`, first writes `text` to the file.
#[track_caller]
pub(super) fn assert_as_committed(text: &str, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/limit").join(file);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text.lines().count(), committed.lines().count(), "rows");
    for (line, expected) in text.lines().zip(committed.lines()) {
        let mut words = line.split_whitespace().zip(expected.split_whitespace());
        let is_alike = words.all(|(now, then)| match (now.parse::<f64>(), then.parse::<f64>()) {
            (Ok(now), Ok(then)) => (now - then).abs() <= 0.02_f64.max(0.05 * then.abs()),
            _ => now == then,
        });
        assert!(is_alike, "now\n{line}\ncommitted\n{expected}");
    }
}
