//! Laws and their parameters on the command line.

use std::str::FromStr;

use tidegate_control::{Values, registry};

/// The value of a law's parameter, as in `LAW.NAME=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    law: String,
    param: String,
    value: f64,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(name, value)| {
            let (law, param) = name.split_once('.')?;
            Some(Self { law: law.to_owned(), param: param.to_owned(), value: value.parse().ok()? })
        });
        parts.ok_or_else(|| "not of the form LAW.NAME=VALUE, such as pi.t_q=0.01".to_owned())
    }
}

/// Returns the laws with the names `names`, with the parameters in `settings`.
///
/// # Errors
/// Returns an error if a name or value is invalid. The error states which are valid.
pub fn choose(names: &[String], settings: &[Setting]) -> Result<Vec<Values>, String> {
    if let Some(stray) = settings.iter().find(|setting| !names.contains(&setting.law)) {
        return Err(format!(
            "--param {0}.{1}: the law {0} is not among the laws to simulate; add `--law {0}`",
            stray.law, stray.param
        ));
    }
    names.iter().map(|name| law(name, settings)).collect()
}

fn law(name: &str, settings: &[Setting]) -> Result<Values, String> {
    let entry = registry::find(name).ok_or_else(|| {
        let names: Vec<_> = registry::LAWS.iter().map(|law| law.name).collect();
        format!("--law {name}: no law has this name; the laws are {}", names.join(", "))
    })?;
    let given: Vec<_> = settings
        .iter()
        .filter(|setting| setting.law == name)
        .map(|setting| (setting.param.as_str(), setting.value))
        .collect();
    entry.values(&given).map_err(|wrong| format!("--param {name}: {wrong}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], settings: &[&str]) -> Result<Vec<Values>, String> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let settings: Vec<_> = settings.iter().map(|text| text.parse().unwrap()).collect();
        choose(&names, &settings)
    }

    #[test]
    fn a_parameter_belongs_to_the_law_it_names() {
        let laws = chosen(&["pi", "none"], &["pi.t_q=0.01"]).unwrap();
        let pi = registry::find("pi").unwrap();
        assert_eq!(laws[0], pi.values(&[("t_q", 0.01)]).unwrap());
        assert_eq!(laws[1].entry().name, "none");
    }

    #[test]
    fn errors_are_reported() {
        assert!(chosen(&["x"], &[]).unwrap_err().contains("the laws are none"));
        assert!(chosen(&["pi"], &["ohta.x=1"]).unwrap_err().contains("add `--law ohta`"));
        assert!(chosen(&["pi"], &["pi.x=1"]).unwrap_err().contains("no parameter `x`"));
        assert!(chosen(&["pi"], &["pi.t_q=-1"]).is_err());
        for text in ["pi", "pi.t_q", "t_q=1", "pi.t_q=x"] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
    }
}
