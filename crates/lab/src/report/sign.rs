//! Formats differences with their sign.

/// Formats a difference with its sign, such as `+0.03` or `-4`. A difference that rounds to 0 has
/// no sign.
pub(crate) fn with_sign(value: f64, digits: usize) -> String {
    let text = format!("{value:+.digits$}");
    match text.trim_start_matches(['+', '-']) {
        nothing if nothing.bytes().all(|byte| matches!(byte, b'0' | b'.')) => nothing.to_owned(),
        _ => text,
    }
}
