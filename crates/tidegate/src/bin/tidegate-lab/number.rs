//! Numbers on the command line.

use std::ops::RangeInclusive;

/// Returns a function that parses a number, and rejects numbers outside `range`.
pub fn number_in(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse::<f64>().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("not a number from {} to {}", range.start(), range.end()))
    }
}
