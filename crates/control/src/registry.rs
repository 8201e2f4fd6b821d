//! Every law by name, with its parameters: configuration, documentation and the command
//! line are made from this list.

use std::fmt;

use crate::Law;
use crate::law::{
    acceptance, aro, breakwater, clearwater, codel, dagor, gradient2, kamailio_feedback, none, occ,
    occupancy, ohta, pi, sired,
};

/// All laws: those of the papers, then those of today's practice.
pub static LAWS: [&Entry; 14] = [
    &none::ENTRY,
    &occupancy::ENTRY,
    &acceptance::ENTRY,
    &aro::ENTRY,
    &sired::ENTRY,
    &ohta::ENTRY,
    &occ::ENTRY,
    &pi::ENTRY,
    &codel::ENTRY,
    &gradient2::ENTRY,
    &breakwater::ENTRY,
    &dagor::ENTRY,
    &clearwater::ENTRY,
    &kamailio_feedback::ENTRY,
];

/// The law of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    LAWS.into_iter().find(|entry| entry.name == name)
}

/// Parameters of one law at the most.
const PARAMS_MAX: usize = 16;

/// A parameter of a law: a number.
#[derive(Debug)]
pub struct Param {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it means: a sentence, in Markdown.
    pub doc: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its value when none is given.
    pub default: f64,
    /// The least it may be.
    pub min: f64,
    /// The most it may be.
    pub max: f64,
}

/// A law, as one chooses it.
pub struct Entry {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it does, in a phrase.
    pub summary: &'static str,
    /// Where it comes from: papers by number (000 to 004) and section.
    pub source: &'static str,
    /// What it does, in Markdown.
    pub doc: &'static str,
    /// Its parameters.
    pub params: &'static [&'static Param],
    /// Checks values that are each within their bounds; an error says what must hold.
    pub check: fn(&Values) -> Result<(), &'static str>,
    /// The law with these values, which were checked.
    pub build: fn(&Values) -> Box<dyn Law>,
}

impl Entry {
    /// The default of every parameter.
    pub fn defaults(&'static self) -> Values {
        let mut values = [0.0; PARAMS_MAX];
        for (value, param) in values.iter_mut().zip(self.params) {
            *value = param.default;
        }
        Values { entry: self, values }
    }

    /// The defaults, but for what is `given` by name.
    ///
    /// # Errors
    /// With the first value that is [`Wrong`].
    pub fn values(&'static self, given: &[(&str, f64)]) -> Result<Values, Wrong> {
        let mut values = self.defaults();
        for &(name, value) in given {
            let index = self.params.iter().position(|param| param.name == name);
            let index = index.ok_or_else(|| Wrong::Unknown(name.to_owned()))?;
            let param = self.params[index];
            if !(param.min..=param.max).contains(&value) {
                return Err(Wrong::OutOfBounds(param, value));
            }
            values.values[index] = value;
        }
        (self.check)(&values).map_err(Wrong::Contradiction)?;
        Ok(values)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The values of a law's parameters, each within its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    entry: &'static Entry,
    /// In the order of the entry's parameters.
    values: [f64; PARAMS_MAX],
}

impl Values {
    /// The value of a parameter.
    ///
    /// # Panics
    /// If it is a parameter of another law.
    pub fn of(&self, param: &Param) -> f64 {
        let index = self.entry.params.iter().position(|known| known.name == param.name);
        self.values[index.expect("a law asks for its own parameters")]
    }

    /// The law whose parameters these are.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// Every parameter with its value.
    pub fn each(&self) -> impl Iterator<Item = (&'static Param, f64)> {
        self.entry.params.iter().copied().zip(self.values)
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.entry, other.entry) && self.values == other.values
    }
}

/// What is wrong with the value of a parameter.
#[derive(Debug)]
pub enum Wrong {
    /// The law has no such parameter.
    Unknown(String),
    /// The value is beyond the bounds of the parameter.
    OutOfBounds(&'static Param, f64),
    /// The values do not fit together: this must hold.
    Contradiction(&'static str),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no parameter `{name}`"),
            Self::OutOfBounds(param, value) => {
                let Param { name, min, max, .. } = param;
                write!(f, "{name} = {value}, but it may be {min} to {max}")
            }
            Self::Contradiction(needed) => write!(f, "the values must have {needed}"),
        }
    }
}

impl std::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_law_is_found_and_built_by_its_defaults() {
        for entry in LAWS {
            assert!(std::ptr::eq(find(entry.name).unwrap(), entry));
            assert!((entry.check)(&entry.defaults()).is_ok(), "{}", entry.name);
            let _ = (entry.build)(&entry.defaults());
        }
        assert!(find("nothing").is_none());
    }

    #[test]
    fn every_parameter_is_documented_and_its_default_within_its_bounds() {
        for entry in LAWS {
            assert!(entry.doc.ends_with('.') && !entry.summary.ends_with('.'), "{}", entry.name);
            assert!(entry.params.len() <= PARAMS_MAX);
            for (index, param) in entry.params.iter().enumerate() {
                let Param { name, doc, unit, default, min, max } = param;
                assert!((min..=max).contains(&default), "{} {name}", entry.name);
                assert!(doc.ends_with('.') && !unit.is_empty(), "{} {name}", entry.name);
                let twin = entry.params[..index].iter().any(|other| other.name == *name);
                assert!(!twin, "{} has two {name}", entry.name);
            }
        }
    }

    #[test]
    fn a_wrong_value_is_named() {
        let ohta = find("ohta").unwrap();
        let wrong = |given: &[(&str, f64)]| ohta.values(given).unwrap_err().to_string();
        assert_eq!(wrong(&[("hi", 1.0)]), "there is no parameter `hi`");
        assert_eq!(wrong(&[("hi_wm", 0.0)]), "hi_wm = 0, but it may be 1 to 1000000");
        assert_eq!(wrong(&[("hi_wm", f64::NAN)]), "hi_wm = NaN, but it may be 1 to 1000000");
        assert!(wrong(&[("hi_wm", 300.0)]).starts_with("the values must have lo_wm < hi_wm"));
        let values = ohta.values(&[("hi_wm", 500.0)]).unwrap();
        let each: Vec<_> = values.each().map(|(param, value)| (param.name, value)).collect();
        assert_eq!(each, [("buffer", 1000.0), ("hi_wm", 500.0), ("lo_wm", 400.0)]);
    }

    #[test]
    fn values_are_alike_if_law_and_numbers_are() {
        let [ohta, pi] = ["ohta", "pi"].map(|name| find(name).unwrap());
        assert_eq!(ohta.defaults(), ohta.values(&[("hi_wm", 800.0)]).unwrap());
        assert_ne!(ohta.defaults(), ohta.values(&[("hi_wm", 801.0)]).unwrap());
        assert_ne!(ohta.defaults(), pi.defaults());
        assert!(format!("{:?}", ohta.defaults()).contains("\"ohta\""));
    }
}
