//! Formats differences.

/// Returns a difference with its sign, `+0.03` or `-4`, or without a sign if it rounds to 0.
pub fn with_sign(value: f64, digits: usize) -> String {
    let text = format!("{value:+.digits$}");
    match text.trim_start_matches(['+', '-']) {
        nothing if nothing.bytes().all(|byte| matches!(byte, b'0' | b'.')) => nothing.to_owned(),
        _ => text,
    }
}
