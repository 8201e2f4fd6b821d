//! The reasons why a command to a running process fails.

use std::fmt;

use tidegate_io::CommandError;

use crate::config::command::Rejected;

/// The reason why a command was not sent, or was rejected by a shard.
#[derive(Debug)]
pub enum ControlError {
    /// The command is invalid.
    Rejected(Rejected),
    /// There is no back end with this name or address. Contains the names and addresses of the
    /// existing back ends.
    Unknown(Vec<String>),
    /// Several back ends are at this address. Contains their names.
    Ambiguous(Vec<String>),
    /// The configuration is longer than the maximum length of a command.
    TooLong {
        /// Length of the configuration in bytes.
        bytes: usize,
        /// The maximum number of bytes.
        limit: usize,
    },
    /// The list of the servers of all domains is longer than the maximum length of a command.
    TooManyServers {
        /// Length of the list in bytes.
        bytes: usize,
        /// The maximum number of bytes.
        limit: usize,
    },
    /// The file at this path, in the state directory, could not be read or written.
    State(std::path::PathBuf, std::io::Error),
    /// A shard has no room for the new pools and back ends.
    NoRoom,
    /// A reload is running, and the maximum number of further reloads is already waiting.
    Reloading,
    /// A shard has neither applied nor rejected the previous reload.
    Unsettled,
    /// A shard could not be reached.
    CommandError(CommandError),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(Rejected::Wrong(diagnostics)) => diagnostics.fmt(f),
            Self::Rejected(Rejected::Restart(keys)) => {
                let what = "cannot be changed in a running process: change the configuration and \
                            restart";
                write!(f, "{} {what}", keys.join(", "))
            }
            // A domain is not a back end itself. Its servers are the back ends.
            Self::Unknown(backends) if backends.is_empty() => f.write_str(
                "there is no back end yet, because the DNS has listed no servers of the domains in \
                 the pools; try again later",
            ),
            Self::Unknown(backends) => {
                let known = some_of(backends);
                write!(f, "no back end has this name or address; the back ends are {known}")
            }
            Self::Ambiguous(names) => {
                write!(
                    f,
                    "several back ends have this address; give one of their names: {}",
                    some_of(names)
                )
            }
            Self::TooLong { bytes, limit } => {
                let [bytes, limit] = [*bytes, *limit].map(grouped);
                write!(
                    f,
                    "cannot reload: the configuration is {bytes} bytes, the limit is {limit}; \
                     restart to apply the configuration"
                )
            }
            // A restart does not help: the process would send the servers in such a command again.
            Self::TooManyServers { bytes, limit } => {
                let [bytes, limit] = [*bytes, *limit].map(grouped);
                write!(
                    f,
                    "cannot apply the new servers: their list is {bytes} bytes, the limit is \
                     {limit}; list fewer servers in the DNS, or use fewer domains in the pools"
                )
            }
            Self::State(path, error) => write!(f, "cannot update {}: {error}", path.display()),
            Self::NoRoom => f.write_str(
                "cannot reload: there are too many back ends, because removed ones still have calls; \
                 try again later, or restart to apply the configuration",
            ),
            Self::Reloading => {
                f.write_str("a reload is running, and too many other reloads wait; try again later")
            }
            Self::Unsettled => {
                f.write_str("a shard has not applied the last reload yet; try again later")
            }
            Self::CommandError(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for ControlError {}

/// Lists up to 20 of `backends`, and the number of those that are not listed.
fn some_of(backends: &[String]) -> String {
    const SHOWN_MAX: usize = 20;
    match backends.len().saturating_sub(SHOWN_MAX) {
        0 => backends.join(", "),
        more => format!("{} and {more} more", backends[..SHOWN_MAX].join(", ")),
    }
}

/// Formats a number in groups of three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_servers_that_is_too_long_is_not_called_a_configuration() {
        let error = ControlError::TooManyServers { bytes: 786_433, limit: 786_432 }.to_string();
        assert!(error.contains("their list is 786,433 bytes, the limit is 786,432"), "{error}");
        for wrong in ["configuration", "reload", "restart"] {
            assert!(!error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn an_unknown_back_end_among_none_is_explained() {
        let error = ControlError::Unknown(Vec::new()).to_string();
        assert!(error.starts_with("there is no back end yet"), "{error}");
        let error = ControlError::Unknown(vec!["a".to_owned(), "b at 192.0.2.1:5060".to_owned()]);
        assert!(error.to_string().ends_with("the back ends are a, b at 192.0.2.1:5060"));
    }
}
