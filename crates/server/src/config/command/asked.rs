//! An operator's request to change the laws of a running process.

use std::path::Path;

use tidegate_proxy::Overload;

use super::json::toml_of_json;
use super::{COMMAND, Rejected};
use crate::config::diagnostic::{Diagnostics, Report};
use crate::config::document::Document;
use crate::config::overload;
use crate::config::section::Section;
use crate::config::tables::overload::{OVERLOAD, PARAMS, SHADOW};
use crate::config::written::{self, Written, WrittenKey};

/// Returns the settings `running` with the changes that the operator requests in `text`. The text
/// is TOML, or JSON if it begins with a brace.
///
/// # Errors
/// Returns an error when `text` is invalid, or changes something that needs a restart.
pub fn asked(text: &[u8], running: &Overload) -> Result<Overload, Rejected> {
    let path = Path::new("request");
    let from_json = match text.trim_ascii_start().first() {
        Some(b'{') => Some(toml_of_json(text).map_err(|what| {
            let help = "write TOML, or a JSON object such as {\"overload\": {\"law\": \"pi\"}}";
            Diagnostics::without_text(path, what, help.to_owned())
        })?),
        _ => None,
    };
    let document = Document::parse(path, from_json.as_deref().map_or(text, str::as_bytes))?;
    let mut report = Report::default();
    let root = Section::root(&COMMAND, document.table(), &mut report);
    let read = root.read_all(&OVERLOAD, read_asked, &mut report).pop();
    if report.is_empty() && read.is_none() {
        let help = "write `[overload]` and `law = …` below it";
        report.missing("the request has no `[overload]`", help);
    }
    let (Some(Some(asked)), true) = (read, report.is_empty()) else {
        return Err(document.reject(report).into());
    };
    asked.over(running)
}

/// The key that names the law.
const LAW: &str = "law";

/// A request to change laws. `law` and `shadow` are true if the request contains these keys.
struct Asked {
    overload: Overload,
    law: bool,
    shadow: bool,
    /// The other keys of `[overload]` in the request. A change of their values needs a restart.
    others: Vec<String>,
}

fn read_asked(section: &Section<'_, '_>, report: &mut Report) -> Option<Asked> {
    let law = section.names().any(|name| name == LAW);
    let mut names = section.names();
    if !law && names.any(|name| name == PARAMS.name) {
        let help = "add `law = …` to `[overload]`";
        report.error(
            section.span(),
            "there are parameters, but no law",
            "the law is missing",
            help,
        );
        return None;
    }
    let tables = [LAW, PARAMS.name, SHADOW.name];
    Some(Asked {
        overload: overload::read(section, report)?,
        law,
        shadow: section.names().any(|name| name == SHADOW.name),
        others: section.names().filter(|name| !tables.contains(name)).map(str::to_owned).collect(),
    })
}

impl Asked {
    fn over(self, running: &Overload) -> Result<Overload, Rejected> {
        let (asked, runs) = (written::overload(&self.overload), written::overload(running));
        let differs = |key: &String| value_of(&asked, key) != value_of(&runs, key);
        let changed = self.others.into_iter().filter(differs);
        let restart: Vec<_> = changed.map(|key| format!("`{key}`")).collect();
        if !restart.is_empty() {
            return Err(Rejected::Restart(restart));
        }
        let mut wanted = running.clone();
        if self.law {
            wanted.gate.law = self.overload.gate.law;
        }
        if self.shadow {
            wanted.gate.shadow = self.overload.gate.shadow;
        }
        Ok(wanted)
    }
}

/// Returns the key `key` of `[overload]`. If `key` is the name of an inner table, returns all keys
/// of the tables with that name.
fn value_of<'a>(tables: &'a [Written], key: &str) -> Vec<&'a WrittenKey> {
    let of = |written: &'a Written| {
        let is_inner = written.table.name == key;
        let is_own = move |known: &&WrittenKey| is_inner || known.name == key;
        let is_here = is_inner || std::ptr::eq(written.table, &OVERLOAD);
        written.keys.iter().filter(is_own).filter(move |_| is_here)
    };
    tables.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_control::registry::find;

    use super::*;
    use crate::config::command::{Command, Laws, given};

    fn running() -> Overload {
        let mut overload = Overload::default();
        overload.gate.law = find("pi").unwrap().values(&[("c_t", 0.8)]).unwrap();
        overload.gate.shadow = Some(find("ohta").unwrap().defaults());
        overload
    }

    fn laws(overload: &Overload) -> Laws {
        Laws { law: overload.gate.law, shadow: overload.gate.shadow }
    }

    fn changed(text: &str) -> Laws {
        let wanted = asked(text.as_bytes(), &running()).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        let Overload { gate, .. } = wanted.clone();
        let mut alike = running();
        (alike.gate.law, alike.gate.shadow) = (gate.law, gate.shadow);
        assert_eq!(wanted, alike, "nothing else is changed");
        let Ok(Command::Laws(told)) = given(written::overload_toml(&wanted).as_bytes()) else {
            panic!()
        };
        assert_eq!(*told, laws(&wanted), "the shards are told the same");
        *told
    }

    fn wrong(text: &str) -> String {
        match asked(text.as_bytes(), &running()) {
            Err(Rejected::Wrong(diagnostics)) => diagnostics.to_string(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn omitted_keys_stay_unchanged() {
        let before = laws(&running());
        let ohta = |given: &[(&str, f64)]| find("ohta").unwrap().values(given).unwrap();
        let law = changed("[overload]\nlaw = \"ohta\"\n[overload.params]\nhi_wm = 500\n");
        assert_eq!(law, Laws { law: ohta(&[("hi_wm", 500.0)]), ..before });
        let shadow = changed("[overload.shadow]\nlaw = \"ohta\"\nparams = { lo_wm = 1 }");
        assert_eq!(shadow, Laws { shadow: Some(ohta(&[("lo_wm", 1.0)])), ..before });
        assert_eq!(changed("overload.shadow.law = \"off\""), Laws { shadow: None, ..before });
        let none = Laws { law: find("none").unwrap().defaults(), ..before };
        assert_eq!(changed("[overload]\nlaw = \"none\""), none);
        // Parameters that are not given get their defaults, and do not keep their previous values.
        assert_eq!(changed("[overload]\nlaw = \"pi\"").law, find("pi").unwrap().defaults());
    }

    #[test]
    fn a_json_request_has_the_same_effect() {
        let json = r#" {"overload": {"law": "pi", "params": {"c_t": 0.75, "k_pc": 3}}}"#;
        let toml = "[overload]\nlaw = \"pi\"\nparams = { c_t = 0.75, k_pc = 3 }";
        assert_eq!(changed(json), changed(toml));
        assert!(wrong("{").contains("not JSON"));
        assert!(wrong(r#"{"overload": {"law": null}}"#).contains("`null` is not allowed"));
    }

    #[test]
    fn errors_are_those_of_a_configuration() {
        assert!(wrong("[overload]\nlaw = \"pie\"").contains("did you mean `\"pi\"`?"));
        let param = wrong("[overload]\nlaw = \"pi\"\n[overload.params]\nc_t = 7\n");
        assert!(param.contains("request:4") && param.contains("more than 1"), "{param}");
        assert!(wrong("[overload.params]\nc_t = 0.8").contains("the law is missing"));
        assert!(
            wrong("[overload.shadow]\nparams = { c_t = 1 }").contains("the shadow law is `off`")
        );
        assert!(wrong("").contains("the request has no `[overload]`"));
        assert!(wrong("[server]\nshards = 2").contains("unknown key `server`"));
        assert!(wrong("[overload]\nlaws = 1").contains("did you mean `law`?"));
        assert!(given(b"[overload]\nlaw = \"of a later version\"").is_err());
    }

    #[test]
    fn fixed_keys_may_be_repeated_unchanged() {
        let same = "[overload]\nlaw = \"pi\"\nthrottle = \"deterministic\"\nmemory_max = 1_048_576";
        changed(same);
        let other = "[overload]\nlaw = \"pi\"\nthrottle = \"random\"\nretry_after = [1, 2]\n\
                     sticky = true";
        match asked(other.as_bytes(), &running()) {
            Err(Rejected::Restart(keys)) => assert_eq!(keys, ["`retry_after`", "`throttle`"]),
            other => panic!("{other:?}"),
        }
        changed("[overload.shadow]\nlaw = \"off\"\n[overload.sessions]\nrate_cps = 100\n");
        match asked(b"[overload.sessions]\nrate_cps = 101", &running()) {
            Err(Rejected::Restart(keys)) => assert_eq!(keys, ["`sessions`"]),
            other => panic!("{other:?}"),
        }
    }
}
