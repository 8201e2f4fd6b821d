//! Compares texts with committed files, for tests.

use std::fs;
use std::path::Path;

/// Compares `text` with a committed file of this crate. If `TIDEGATE_BLESS` is set, first writes the
/// text to the file.
///
/// With a tolerance, words that are numbers may differ by the tolerance or by 5 %. Logarithms differ
/// in their last bit from one machine to another, so the runs of a simulation differ too.
#[track_caller]
pub fn assert_committed(file: impl AsRef<Path>, text: &str, tolerance: Option<f64>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let path = path.display();
    for (now, then) in text.split('\n').zip(committed.split('\n')) {
        let remedy = "TIDEGATE_BLESS=1 rewrites the file";
        assert!(agree(now, then, tolerance), "{path}: {remedy}\nnow\n{now}\ncommitted\n{then}");
    }
    let rows = |text: &str| text.split('\n').count();
    assert_eq!(rows(text), rows(&committed), "rows of {path}");
}

fn agree(now: &str, then: &str, tolerance: Option<f64>) -> bool {
    let Some(tolerance) = tolerance else { return now == then };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (now, then) = (words(now), words(then));
    now.len() == then.len()
        && now.iter().zip(&then).all(|(now, then)| {
            match (now.parse::<f64>(), then.parse::<f64>()) {
                (Ok(now), Ok(then)) => (now - then).abs() <= tolerance.max(0.05 * then.abs()),
                _ => now == then,
            }
        })
}
