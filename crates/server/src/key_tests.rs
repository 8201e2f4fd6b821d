//! Tests of the key file.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tidegate_proxy::{Base, Secret, TokenKey, TokenKeys};

use super::*;

/// Returns the keys in force now.
fn in_force(keys: &KeyRing) -> Secret {
    keys.secret(unix_time(), Duration::from_secs(60))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns a private state directory whose key file has `content`.
fn written(content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    fs::write(&path, content).unwrap();
    set_mode(&path, 0o600);
    (dir, path)
}

#[test]
fn a_first_start_makes_a_private_key_that_the_next_one_finds() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a/b");
    let keys = load_or_create(&state).unwrap();
    let Secret { base, tokens } = in_force(&keys);
    assert_ne!(base.0, Key::default());
    assert_ne!(tokens.current.key, Key::default());
    assert_ne!(tokens.current.key, base.0);
    assert!(tokens.others.is_empty());
    assert_eq!(mode(&state.join(FILE_NAME)), 0o600);
    assert_eq!(mode(&state), 0o700);
    assert_eq!(load_or_create(&state), Ok(keys.clone()));

    let names: Vec<_> = fs::read_dir(&state).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(names, [FILE_NAME], "no draft is left behind");

    let other = load_or_create(&dir.path().join("c")).unwrap();
    assert_ne!(in_force(&other).tokens.current, tokens.current);
}

#[test]
fn a_key_of_another_user_is_rejected_with_a_remedy_that_keeps_its_service_running() {
    let path = Path::new("/var/lib/tidegate/route.key");
    for owner in [0, 1000] {
        assert_eq!(check_owner(path, owner, 1000), Ok(()), "{owner}");
    }
    let error = check_owner(path, 105, 0).unwrap_err().to_string();
    for part in ["uid 105", "`sudo -u '#105' tidegate run`", "`[server] state_dir`"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn processes_that_start_together_agree() {
    let dir = tempfile::tempdir().unwrap();
    let found: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> =
            (0..8).map(|_| scope.spawn(|| load_or_create(dir.path()).unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert!(found.iter().all(|keys| *keys == found[0]));
}

#[test]
fn the_key_in_the_first_line_makes_tokens_and_all_keys_verify_them() {
    let lines = format!("{}\n{}\n{}\n", "0a".repeat(32), "FF".repeat(32), "01".repeat(32));
    let (dir, _) = written(lines);
    let Secret { base, tokens } = in_force(&load_or_create(dir.path()).unwrap());
    assert_eq!(base, Base([0x0a; 32]));
    let key = |version: u32, byte: u8| TokenKey { version, key: [byte; 32] };
    assert_eq!(tokens, TokenKeys { current: key(3, 0x0a), others: vec![key(2, 0xff), key(1, 1)] });
    assert!(!format!("{base:?} {tokens:?}").contains("10"), "no secret is shown");
}

#[test]
fn a_key_others_may_use_is_rejected() {
    let (dir, path) = written("0a".repeat(32));
    for wrong in [0o640, 0o604, 0o620, 0o601, 0o777] {
        set_mode(&path, wrong);
        let error = load_or_create(dir.path()).unwrap_err();
        assert!(error.what.contains(&format!("mode {wrong:04o}")), "{error}");
        assert!(error.remedy.contains("chmod 600"), "{error}");
    }
    for right in [0o600, 0o400] {
        set_mode(&path, right);
        assert!(load_or_create(dir.path()).is_ok());
    }
}

#[test]
fn wrong_content_is_rejected_with_its_line_and_not_shown() {
    let right = "0a".repeat(32);
    for (content, line, what) in [
        (String::new(), 1, "an empty line"),
        ("\n".to_owned(), 1, "an empty line"),
        (right[1..].to_owned(), 1, "63 digits"),
        (format!("{right}\n{right}0"), 2, "65 digits"),
        (format!("{right}\r\n"), 1, "character 65 is not a hexadecimal digit"),
        (format!("{right}\n\n{right}\n"), 2, "an empty line"),
        (format!("{right}\ng{}", &right[1..]), 2, "character 1 is not a hexadecimal digit"),
        (format!("+{}", &right[1..]), 1, "character 1 is not a hexadecimal digit"),
        (format!("{right}\n").repeat(9), 9, "more than 8 keys"),
    ] {
        let (dir, path) = written(&content);
        let error = load_or_create(dir.path()).unwrap_err();
        assert_eq!(error.place, format!("{}:{line}", path.display()), "{content:?}");
        assert!(error.what.contains(what), "{error}");
        assert!(!error.to_string().contains("0a0a"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), content, "left as it was");
    }
}

#[test]
fn paths_to_other_kinds_of_files_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(FILE_NAME)).unwrap();
    assert_eq!(load_or_create(dir.path()).unwrap_err().what, "not a file");

    let (file, path) = written("");
    let error = load_or_create(&path).unwrap_err();
    assert!(
        error.what.starts_with("the file cannot be read: Not a directory"),
        "nothing is made: {error}"
    );
    drop(file);
}

#[test]
fn the_state_directory_is_the_first_that_is_suggested() {
    let env = |pairs: &'static [(&str, &str)]| {
        move |name: &str| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        }
    };
    let all: &[_] = &[("STATE_DIRECTORY", "/s:/t"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")];
    let found = |pairs, is_root| suggested(env(pairs), is_root).map(|p| p.display().to_string());
    assert_eq!(found(all, false).as_deref(), Some("/s"));
    assert_eq!(found(&all[1..], true).as_deref(), Some("/x/tidegate"));
    assert_eq!(found(&all[2..], true).as_deref(), Some("/var/lib/tidegate"));
    assert_eq!(found(&all[2..], false).as_deref(), Some("/h/.local/state/tidegate"));
    assert_eq!(found(&[("XDG_STATE_HOME", ""), ("STATE_DIRECTORY", "s")], false), None);
    assert_eq!(state_dir(Some(Path::new("/given"))), Ok(PathBuf::from("/given")));
}

#[test]
fn a_change_writes_all_keys_or_keeps_the_old_ones() {
    let (dir, path) = written(format!("{}\n", "0a".repeat(32)));
    let settle = Duration::from_secs(60);
    let keys = load_or_create(dir.path()).unwrap();
    let rotate = |ring: &KeyRing| ring.rotated(unix_time(), settle, [7; 32]);
    let changed = change(dir.path(), rotate).unwrap();
    assert_ne!(changed, keys);
    assert_eq!(load_or_create(dir.path()), Ok(changed.clone()));
    assert_eq!(mode(&path), 0o600);
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [FILE_NAME, LOCK_NAME], "no draft is left behind");

    let rejected = change(dir.path(), rotate).unwrap_err();
    assert!(matches!(rejected, NotKept::NotRotated(NotRotated::Settling(2, _))), "{rejected:?}");
    assert_eq!(load_or_create(dir.path()), Ok(changed));
}

#[test]
fn one_of_several_processes_that_rotate_together_makes_a_key() {
    let (dir, _) = written(format!("{}\n", "0a".repeat(32)));
    let settle = Duration::from_secs(60);
    let rotate = |key: u8| change(dir.path(), |ring| ring.rotated(unix_time(), settle, [key; 32]));
    let rotate = &rotate;
    let done: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|n| scope.spawn(move || rotate(n).is_ok())).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(done.iter().filter(|done| **done).count(), 1);
}

#[test]
fn a_locked_key_file_is_an_error_at_once() {
    let (dir, _) = written(format!("{}\n", "0a".repeat(32)));
    let rotate = |ring: &KeyRing| ring.rotated(unix_time(), Duration::ZERO, [7; 32]);
    let other = File::create(dir.path().join(LOCK_NAME)).unwrap();
    other.lock().unwrap();
    assert_eq!(change(dir.path(), rotate), Err(NotKept::Busy));
    drop(other);
    assert!(change(dir.path(), rotate).is_ok());
}

#[test]
fn the_maximum_number_of_keys_is_read() {
    let lines: String = (1..=KEYS_MAX).map(|n| format!("{n:064x}\n")).collect();
    let (dir, _) = written(lines);
    assert_eq!(in_force(&load_or_create(dir.path()).unwrap()).tokens.others.len(), KEYS_MAX - 1);
}

#[test]
fn a_draft_replaces_no_existing_file_and_its_absence_is_an_error() {
    let (dir, path) = written("first");
    let draft = dir.path().join("draft");
    fs::write(&draft, "second").unwrap();
    publish(&draft, &path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "first", "who was faster is not disturbed");
    fs::remove_file(&draft).unwrap();
    let error = publish(&draft, &dir.path().join("other")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn the_reason_for_no_new_key_is_reported() {
    let wrong = || StartError::new("here", "what is wrong", "what to do");
    for (why, said) in [
        (NotKept::Busy, "another process is changing the keys; try again".to_owned()),
        (NotKept::Entropy("none".to_owned()), "cannot get random numbers: none".to_owned()),
        (wrong().into(), wrong().to_string()),
    ] {
        assert_eq!(why.to_string(), said);
    }
    let early = NotRotated::Settling(2, Duration::from_secs(1));
    assert_eq!(NotKept::NotRotated(early).to_string(), early.to_string());
}
