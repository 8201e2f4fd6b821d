//! The command that tells shards which keys make and verify route tokens.
//!
//! The text of the command begins with a line `[keys]`. Each further line contains the version of a
//! key and the key. The key that makes tokens comes first. A recording contains every command, so a
//! replay rotates the keys at the same time as the recorded process did.

use tidegate_proxy::{TokenKey, TokenKeys};

use super::{KEYS_MAX, from_hex, to_hex};

const HEADER: &[u8] = b"[keys]\n";

/// Returns the text of the command that makes shards use these keys.
pub fn text(keys: &TokenKeys) -> String {
    let all = std::iter::once(&keys.current).chain(&keys.others);
    let line = |TokenKey { version, key }: &TokenKey| format!("{version} {}\n", to_hex(key));
    "[keys]\n".to_owned() + &all.map(line).collect::<String>()
}

/// Returns whether `command` starts with the line `[keys]`.
pub(crate) fn is_about_keys(command: &[u8]) -> bool {
    command.starts_with(HEADER)
}

/// Parses the text of a command that starts with `[keys]`. Returns `None` if the text is malformed,
/// for example because another version of Tidegate has written it.
pub fn given(command: &[u8]) -> Option<TokenKeys> {
    let lines = command.strip_prefix(HEADER)?.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
    let key = |line: &[u8]| {
        let (version, key) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        Some(TokenKey { version: version.parse().ok()?, key: from_hex(key.as_bytes())? })
    };
    let mut keys: Vec<_> = lines.take(KEYS_MAX + 1).map(key).collect::<Option<_>>()?;
    if keys.len() > KEYS_MAX {
        return None;
    }
    let current = keys.remove(0);
    Some(TokenKeys { current, others: keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_back() {
        let key = |version: u32| TokenKey { version, key: [version as u8; 32] };
        for others in [vec![], vec![key(9), key(7)]] {
            let keys = TokenKeys { current: key(8), others };
            let text = text(&keys);
            assert!(is_about_keys(text.as_bytes()));
            assert_eq!(given(text.as_bytes()), Some(keys));
        }
    }

    #[test]
    fn other_texts_are_not_commands_about_keys() {
        let right =
            text(&TokenKeys { current: TokenKey { version: 1, key: [1; 32] }, others: Vec::new() });
        assert!(given(right.as_bytes()).is_some());
        let line = right.strip_prefix("[keys]\n").unwrap();
        let many = "[keys]\n".to_owned() + &line.repeat(KEYS_MAX + 1);
        for wrong in ["[keys]\n", "[overload]\n", &right[..right.len() - 2], line, &many] {
            assert_eq!(given(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_command_has_room_for_the_maximum_number_of_keys() {
        let key = |version: usize| TokenKey { version: version as u32, key: [version as u8; 32] };
        let keys = TokenKeys { current: key(KEYS_MAX), others: (1..KEYS_MAX).map(key).collect() };
        assert_eq!(given(text(&keys).as_bytes()), Some(keys));
    }

    #[test]
    fn other_commands_are_not_about_keys() {
        assert!(!is_about_keys(b"[overload]\nlaw = \"occ\"\n"));
    }
}
