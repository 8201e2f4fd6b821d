//! Arrival processes on the command line.

use std::fs::File;
use std::io::Read;

use tidegate_agent::{Process, Trace};

/// Maximum size of a trace in bytes. Ten million lines of 26 bytes fit.
const FILE_MAX: u64 = 1 << 28;

/// Parses `poisson`, `uniform`, `mmpp:F=S,F=S,…` or `trace:FILE`. Reads the trace file.
pub fn parse_arrivals(text: &str) -> Result<Process, String> {
    match text.split_once(':') {
        None if text == "poisson" => Ok(Process::Poisson),
        None if text == "uniform" => Ok(Process::Uniform),
        Some(("mmpp", states)) => {
            states.parse().map(Process::Mmpp).map_err(|error| error.to_string())
        }
        Some(("trace", file)) => match read(file) {
            Ok(trace) => Ok(Process::Trace(trace)),
            Err(error) => Err(format!("{file}: {error}")),
        },
        _ => Err("expected poisson, uniform, mmpp:F=S,F=S,… or trace:FILE".to_owned()),
    }
}

fn read(file: &str) -> Result<Trace, Box<dyn std::error::Error>> {
    let mut text = String::new();
    File::open(file)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(format!("the file has more than {} MiB", FILE_MAX >> 20).into());
    }
    Ok(text.parse()?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn written_arrivals_read_back_unchanged() {
        for text in ["poisson", "uniform", "mmpp:1=10,5=0.5"] {
            assert_eq!(parse_arrivals(text).unwrap().to_string(), text);
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "0\n1.5 # late\n").unwrap();
        let trace = Process::Trace("0\n1.5\n".parse().unwrap());
        assert_eq!(parse_arrivals(&format!("trace:{}", file.path().display())), Ok(trace));
    }

    #[test]
    fn invalid_arrival_processes_are_rejected() {
        let rejected = |text: &str| parse_arrivals(text).unwrap_err();
        for text in ["", "poison", "poisson:", "trace", "mmpp"] {
            assert!(rejected(text).starts_with("expected "), "{text}");
        }
        assert_eq!(rejected("mmpp:1=1"), "1 states: there must be 2 to 8");
        assert!(rejected("trace:/nonexistent").starts_with("/nonexistent: No such file"));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "1\n0.5\n").unwrap();
        let path = file.path().display();
        let said = rejected(&format!("trace:{path}"));
        assert_eq!(said, format!("{path}: line 2: the call is earlier than the call before it"));
    }

    #[test]
    fn a_file_that_is_too_large_or_not_text_is_rejected() {
        assert!(parse_arrivals("trace:/dev/zero").unwrap_err().contains("more than 256 MiB"));
    }
}
