//! Orders: what an operator has changed in a running process, in the words of its configuration.
//!
//! There are three, told apart by their tables: a whole configuration, of which pools and routes
//! are taken on; a `[duty]` of a back end; and laws.
//!
//! The last is the text of the table `[overload]`, as it would stand in the configuration. Of
//! what is in it `law` with `[overload.params]`, and `[overload.shadow]`, can be changed while
//! calls are served; what is left out stays as it is. Any other key may be given if it says what
//! holds already: for another value the process has to be restarted.
//!
//! What is asked for is read by the reader of the configuration, and wrong in the same ways. What
//! the shards are given is what shall hold from then on, written out in full.

use std::path::Path;

use serde_json::Value;
use tidegate_balance::Duty;
use tidegate_control::Values;
use tidegate_proxy::Overload;

use super::diagnostic::{Diagnostics, Report};
use super::document::Document;
use super::knob::{Absent, Knob, Table};
use super::resolved::overload_toml;
use super::section::Section;
use super::shape::{Choice, Text};
use super::tables::{LAW, LISTEN, OVERLOAD, PARAMS, SHADOW};
use super::{Config, overload};

static ORDER: Table = Table {
    header: "",
    name: "",
    count: 0..=1,
    doc: "",
    knobs: &[],
    tables: &[&OVERLOAD],
    has_free_keys: false,
    reserved: &[],
};

static DUTY_ORDER: Table = Table {
    header: "",
    name: "",
    count: 0..=1,
    doc: "",
    knobs: &[],
    tables: &[&DUTY],
    has_free_keys: false,
    reserved: &[],
};

static DUTY: Table = Table {
    header: "[duty]",
    name: "duty",
    count: 1..=1,
    doc: "",
    knobs: &[&DUTY_BACKEND, &DUTY_WORD],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

static DUTY_BACKEND: Knob<Text<String>> = Knob {
    name: "backend",
    shape: Text { what: "the name of a back end", parse: |text| Ok(text.to_owned()) },
    absent: Absent::Required,
    doc: "",
};

static DUTY_WORD: Knob<Choice<Duty>> = Knob {
    name: "duty",
    shape: Choice {
        words: &[
            ("enable", Duty::InService),
            ("drain", Duty::Draining),
            ("disable", Duty::Maintenance),
        ],
        reserved: &[],
    },
    absent: Absent::Required,
    doc: "",
};

/// What a shard is given.
#[derive(Debug)]
pub enum Order {
    /// Other laws.
    Laws(Box<Laws>),
    /// What a back end is there for from now on.
    Duty(String, Duty),
    /// The configuration whose pools and routes shall hold.
    Reload(Box<Config>),
}

/// The laws that shall be in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Laws {
    /// The one that decides.
    pub law: Values,
    /// The one that looks on.
    pub shadow: Option<Values>,
}

/// Why an order is not given.
#[derive(Debug)]
pub enum Refused {
    /// It is wrong.
    Wrong(Diagnostics),
    /// These keys have another value, which a running process cannot take on.
    Restart(Vec<String>),
}

impl From<Diagnostics> for Refused {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Wrong(diagnostics)
    }
}

/// What shall hold where `running` does, after an operator has asked for `text`: TOML, or if it
/// begins with a brace the same as JSON.
///
/// # Errors
/// When it is wrong, or asks for what needs a restart.
pub fn asked(text: &[u8], running: &Overload) -> Result<Overload, Refused> {
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
    let root = Section::root(&ORDER, document.table(), &mut report);
    let read = root.read_all(&OVERLOAD, read_asked, &mut report).pop();
    if report.is_empty() && read.is_none() {
        let help = "write `[overload]` and `law = …` below it";
        report.missing("nothing is asked for: there is no `[overload]`", help);
    }
    let (Some(Some(asked)), true) = (read, report.is_empty()) else {
        return Err(document.refuse(report).into());
    };
    asked.over(running)
}

/// What was given to a shard: by [`text`], by [`duty_text`], or a configuration as it was read.
///
/// # Errors
/// When it is not understood: it was written by another version.
pub fn given(text: &[u8]) -> Result<Order, Diagnostics> {
    let path = Path::new("order");
    let document = Document::parse(path, text)?;
    if document.table().contains_key(LISTEN.name) {
        return Ok(Order::Reload(Box::new(Config::parse(path, text)?)));
    }
    if document.table().contains_key(DUTY.name) {
        return given_duty(&document);
    }
    let mut report = Report::default();
    let root = Section::root(&ORDER, document.table(), &mut report);
    let read = root.read_one(&OVERLOAD, overload::read, &mut report);
    match read {
        Some(Overload { gate, .. }) if report.is_empty() => {
            Ok(Order::Laws(Box::new(Laws { law: gate.law, shadow: gate.shadow })))
        }
        _ => Err(document.refuse(report)),
    }
}

fn given_duty(document: &Document<'_>) -> Result<Order, Diagnostics> {
    let mut report = Report::default();
    let root = Section::root(&DUTY_ORDER, document.table(), &mut report);
    let read = |section: &Section<'_, '_>, report: &mut Report| {
        let backend = section.value(&DUTY_BACKEND, report)?.into_inner();
        Some((backend, section.value(&DUTY_WORD, report)?.into_inner()))
    };
    match root.read_one(&DUTY, read, &mut report) {
        Some((backend, duty)) if report.is_empty() => Ok(Order::Duty(backend, duty)),
        _ => Err(document.refuse(report)),
    }
}

/// The order by which a back end gets another duty: `enable`, `drain` or `disable`. It is not
/// checked: [`given`] does that.
pub fn duty_text(backend: &str, duty: &str) -> String {
    format!("[duty]\nbackend = {}\nduty = {}\n", Value::from(backend), Value::from(duty))
}

/// The order by which shards learn what shall hold.
pub fn text(overload: &Overload) -> String {
    overload_toml(overload)
}

/// What was asked for, and which keys were given for it.
struct Asked {
    overload: Overload,
    law: bool,
    shadow: bool,
    /// Keys of `[overload]` that cannot be changed.
    others: Vec<String>,
}

fn read_asked(section: &Section<'_, '_>, report: &mut Report) -> Option<Asked> {
    let law = section.has(&LAW);
    let mut names = section.names();
    if !law && names.any(|name| name == PARAMS.name) {
        let help = "add `law = …` to `[overload]`";
        report.error(section.span(), "parameters of no law", "it is not said of which law", help);
        return None;
    }
    let tables = [LAW.name, PARAMS.name, SHADOW.name];
    Some(Asked {
        overload: overload::read(section, report)?,
        law,
        shadow: section.names().any(|name| name == SHADOW.name),
        others: section.names().filter(|name| !tables.contains(name)).map(str::to_owned).collect(),
    })
}

impl Asked {
    fn over(self, running: &Overload) -> Result<Overload, Refused> {
        let (asked, runs) = (overload_toml(&self.overload), overload_toml(running));
        let differs = |key: &String| value_of(&asked, key) != value_of(&runs, key);
        let restart: Vec<_> = self.others.into_iter().filter(differs).collect();
        if !restart.is_empty() {
            return Err(Refused::Restart(restart));
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

/// The value of a key of `[overload]`, or the content of a table in it, in what [`overload_toml`]
/// writes.
fn value_of<'a>(toml: &'a str, key: &str) -> Option<&'a str> {
    let header = format!("[overload.{key}]\n");
    if let Some((_, inner)) = toml.split_once(&header) {
        return Some(inner.split("\n[").next().unwrap_or(inner).trim_end());
    }
    // The tables within come after a blank line.
    let lines = toml.lines().skip(1).take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_once(" = ")).find(|(name, _)| *name == key).map(|(_, v)| v)
}

/// A JSON object as TOML.
fn toml_of_json(text: &[u8]) -> Result<String, String> {
    let value: Value =
        serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(members) = value else { return Err("not a JSON object".to_owned()) };
    let mut toml = String::new();
    for (key, value) in &members {
        toml += &format!("{} = ", Value::from(&**key));
        put_value(&mut toml, value)?;
        toml.push('\n');
    }
    Ok(toml)
}

/// Appends a value. JSON's strings, numbers and lists are TOML's as well.
fn put_value(toml: &mut String, value: &Value) -> Result<(), String> {
    let list = |toml: &mut String, ends: [char; 2], put: &mut dyn FnMut(&mut String) -> _| {
        toml.push(ends[0]);
        let done: Result<(), String> = put(toml);
        toml.push(ends[1]);
        done
    };
    match value {
        Value::Null => Err("`null` is no value: leave out what is to stay as it is".to_owned()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            toml.push_str(&value.to_string());
            Ok(())
        }
        Value::Array(items) => list(toml, ['[', ']'], &mut |toml| {
            items.iter().enumerate().try_for_each(|(index, item)| {
                toml.push_str(if index > 0 { ", " } else { "" });
                put_value(toml, item)
            })
        }),
        Value::Object(members) => list(toml, ['{', '}'], &mut |toml| {
            members.iter().enumerate().try_for_each(|(index, (key, item))| {
                toml.push_str(if index > 0 { ", " } else { "" });
                toml.push_str(&format!("{} = ", Value::from(&**key)));
                put_value(toml, item)
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_control::registry::find;

    use super::*;

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
        let Ok(Order::Laws(told)) = given(super::text(&wanted).as_bytes()) else { panic!() };
        assert_eq!(*told, laws(&wanted), "the shards are told the same");
        *told
    }

    #[test]
    fn a_duty_is_a_word_about_a_back_end() {
        for (word, means) in
            [("enable", Duty::InService), ("drain", Duty::Draining), ("disable", Duty::Maintenance)]
        {
            let Ok(Order::Duty(backend, duty)) = given(duty_text("[::1]:5070", word).as_bytes())
            else {
                panic!("{word}")
            };
            assert_eq!((backend.as_str(), duty), ("[::1]:5070", means));
        }
        let wrong = given(duty_text("a\"b", "rest").as_bytes()).unwrap_err().to_string();
        assert!(wrong.contains("`duty` has no choice `rest`"), "{wrong}");
        assert!(given(b"[duty]\nduty = \"drain\"\n").is_err());
    }

    #[test]
    fn a_whole_configuration_is_an_order_too() {
        let text = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n[[pool]]\n\
                    name = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1\"\n";
        let Ok(Order::Reload(config)) = given(text.as_bytes()) else { panic!() };
        assert_eq!(config.pool[0].name, "app");
        assert!(given(text.replace("uri", "url").as_bytes()).is_err());
    }

    fn wrong(text: &str) -> String {
        match asked(text.as_bytes(), &running()) {
            Err(Refused::Wrong(diagnostics)) => diagnostics.to_string(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_is_left_out_stays_as_it_is() {
        let before = laws(&running());
        let ohta = |given: &[(&str, f64)]| find("ohta").unwrap().values(given).unwrap();
        let law = changed("[overload]\nlaw = \"ohta\"\n[overload.params]\nhi_wm = 500\n");
        assert_eq!(law, Laws { law: ohta(&[("hi_wm", 500.0)]), ..before });
        let shadow = changed("[overload.shadow]\nlaw = \"ohta\"\nparams = { lo_wm = 1 }");
        assert_eq!(shadow, Laws { shadow: Some(ohta(&[("lo_wm", 1.0)])), ..before });
        assert_eq!(changed("overload.shadow.law = \"off\""), Laws { shadow: None, ..before });
        let none = Laws { law: find("none").unwrap().defaults(), ..before };
        assert_eq!(changed("[overload]\nlaw = \"none\""), none);
        // Parameters that are not given have their defaults, and not what they had before.
        assert_eq!(changed("[overload]\nlaw = \"pi\"").law, find("pi").unwrap().defaults());
    }

    #[test]
    fn json_says_the_same() {
        let json = r#" {"overload": {"law": "pi", "params": {"c_t": 0.75, "k_pc": 3}}}"#;
        let toml = "[overload]\nlaw = \"pi\"\nparams = { c_t = 0.75, k_pc = 3 }";
        assert_eq!(changed(json), changed(toml));
        assert!(wrong("{").contains("not JSON"));
        assert!(wrong(r#"{"overload": {"law": null}}"#).contains("`null` is no value"));
        let list = r#"{"overload": {"shed": ["\u00e9\n", [], {"a": true}], "x": {}}}"#;
        assert_eq!(
            toml_of_json(list.as_bytes()).unwrap(),
            "\"overload\" = {\"shed\" = [\"é\\n\", [], {\"a\" = true}], \"x\" = {}}\n"
        );
    }

    #[test]
    fn what_is_wrong_is_wrong_as_in_a_configuration() {
        assert!(wrong("[overload]\nlaw = \"pie\"").contains("did you mean `\"pi\"`?"));
        let param = wrong("[overload]\nlaw = \"pi\"\n[overload.params]\nc_t = 7\n");
        assert!(param.contains("request:4") && param.contains("more than 1"), "{param}");
        assert!(wrong("[overload.params]\nc_t = 0.8").contains("not said of which law"));
        assert!(wrong("[overload.shadow]\nparams = { c_t = 1 }").contains("the shadow is off"));
        assert!(wrong("").contains("nothing is asked for"));
        assert!(wrong("[server]\nshards = 2").contains("unknown key `server`"));
        assert!(wrong("[overload]\nlaws = 1").contains("did you mean `law`?"));
        assert!(given(b"[overload]\nlaw = \"of a later version\"").is_err());
    }

    #[test]
    fn what_cannot_be_changed_may_be_said_as_it_is() {
        let same = "[overload]\nlaw = \"pi\"\nthrottle = \"deterministic\"\nmemory_max = 1_048_576";
        changed(same);
        let other = "[overload]\nlaw = \"pi\"\nthrottle = \"random\"\nretry_after = [1, 2]\n\
                     sticky = true";
        match asked(other.as_bytes(), &running()) {
            Err(Refused::Restart(keys)) => assert_eq!(keys, ["retry_after", "throttle"]),
            other => panic!("{other:?}"),
        }
        changed("[overload.shadow]\nlaw = \"off\"\n[overload.sessions]\nrate_cps = 100\n");
        match asked(b"[overload.sessions]\nrate_cps = 101", &running()) {
            Err(Refused::Restart(keys)) => assert_eq!(keys, ["sessions"]),
            other => panic!("{other:?}"),
        }
    }
}
