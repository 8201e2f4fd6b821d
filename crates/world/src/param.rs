//! Parameters of laws and policies, and their values.
//!
//! Laws of overload control are one [`Kind`], and policies of balancing are another. Each kind has
//! one [`Registry`], with an [`Entry`] for each law or policy. Configuration, documentation and the
//! command line are generated from the entries, so they agree.

use std::fmt;
use std::ops::RangeInclusive;

/// Maximum number of parameters of one law or policy.
pub const PARAMS_MAX: usize = 16;

/// A numeric parameter of a law or a policy.
#[derive(Debug)]
pub struct Param {
    /// The name of the parameter in configurations.
    pub name: &'static str,
    /// The meaning of the parameter: a sentence, in Markdown.
    pub doc: &'static str,
    /// The unit of the value.
    pub unit: &'static str,
    /// The default value.
    pub default: f64,
    /// The allowed values.
    pub range: Range,
}

impl Param {
    /// Creates a parameter that takes all numbers from `min` to `max`.
    pub const fn real(
        name: &'static str,
        unit: &'static str,
        default: f64,
        min: f64,
        max: f64,
    ) -> Self {
        Self { name, doc: "", unit, default, range: Range::Real(min, max) }
    }

    /// Creates a parameter that takes the whole numbers from `min` to `max`.
    pub const fn whole(
        name: &'static str,
        unit: &'static str,
        default: f64,
        min: u32,
        max: u32,
    ) -> Self {
        Self { name, doc: "", unit, default, range: Range::Whole(min, max) }
    }

    /// Returns the same parameter with the description `doc`.
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }
}

/// The allowed values of a parameter: all numbers between two bounds, or the whole numbers between
/// them. The bounds are allowed too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// All numbers from the first bound to the second.
    Real(f64, f64),
    /// The whole numbers from the first bound to the second. The bounds 0 and 1 mean a choice
    /// between no and yes.
    Whole(u32, u32),
}

impl Range {
    /// Returns the smallest and the largest allowed value.
    pub fn bounds(self) -> RangeInclusive<f64> {
        match self {
            Self::Real(min, max) => min..=max,
            Self::Whole(min, max) => f64::from(min)..=f64::from(max),
        }
    }

    /// Returns whether a value is allowed. NaN is never allowed.
    pub fn contains(self, value: f64) -> bool {
        self.bounds().contains(&value) && (matches!(self, Self::Real(..)) || value.fract() == 0.0)
    }

    /// Returns the allowed value that is nearest to a number.
    pub fn nearest(self, value: f64) -> f64 {
        let value = if matches!(self, Self::Real(..)) { value } else { value.round() };
        value.clamp(*self.bounds().start(), *self.bounds().end())
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real(min, max) => write!(f, "a number from {min} to {max}"),
            Self::Whole(min, max) => write!(f, "a whole number from {min} to {max}"),
        }
    }
}

/// A kind of algorithm that is selected by name and has parameters, such as the laws of overload
/// control.
pub trait Kind: Sized + 'static {
    /// The word for this kind in messages and in the reference, such as `law`.
    const WORD: &'static str;
    /// The type of the function that builds an algorithm of this kind.
    type Build: Sync;
}

/// One algorithm of a kind: its name, its documentation and its parameters.
pub struct Entry<K: Kind> {
    /// The name of the algorithm in configurations.
    pub name: &'static str,
    /// A phrase that describes how the algorithm decides.
    pub summary: &'static str,
    /// The source of the algorithm: a paper, by its number (000 to 004) and section, or other work.
    pub source: &'static str,
    /// The full description, in Markdown.
    pub doc: &'static str,
    /// The parameters, at most [`PARAMS_MAX`].
    pub params: &'static [&'static Param],
    /// Checks whether parameter values, each within its own range, fit together. An error states
    /// the condition that they must meet.
    pub check: fn(&Values<K>) -> Result<(), &'static str>,
    /// The function that builds the algorithm from checked values.
    pub build: K::Build,
}

impl<K: Kind> Entry<K> {
    /// Returns the default of every parameter.
    pub fn defaults(&'static self) -> Values<K> {
        let mut values = [0.0; PARAMS_MAX];
        for (value, param) in values.iter_mut().zip(self.params) {
            *value = param.default;
        }
        Values { entry: self, values }
    }

    /// Returns the defaults, overridden by the `given` values.
    ///
    /// # Errors
    /// Returns the first error: an unknown name, or a value out of its range. If there is neither,
    /// returns the condition that the values do not meet together.
    pub fn values(&'static self, given: &[(&str, f64)]) -> Result<Values<K>, Wrong> {
        let mut values = self.defaults();
        for &(name, value) in given {
            let index = self.params.iter().position(|param| param.name == name);
            let index = index.ok_or_else(|| Wrong::Unknown(name.to_owned()))?;
            let param = self.params[index];
            if !param.range.contains(value) {
                return Err(Wrong::OutOfRange(param, value));
            }
            values.values[index] = value;
        }
        (self.check)(&values).map_err(Wrong::Contradiction)?;
        Ok(values)
    }
}

/// An entry equals only itself: entries are compared by their address.
impl<K: Kind> PartialEq for Entry<K> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl<K: Kind> fmt::Debug for Entry<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All entries of a kind. Configuration, documentation and the command line are generated from
/// them.
pub struct Registry<K: Kind>(&'static [&'static Entry<K>]);

impl<K: Kind> Registry<K> {
    /// Creates a registry of these entries, in this order.
    pub const fn new(entries: &'static [&'static Entry<K>]) -> Self {
        Self(entries)
    }

    /// Returns the number of entries.
    #[allow(clippy::len_without_is_empty, reason = "a registry has entries")]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the names of the entries.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|entry| entry.name)
    }

    /// Returns the entry with this name, or `None` if there is none.
    pub fn find(&self, name: &str) -> Option<&'static Entry<K>> {
        self.0.iter().copied().find(|entry| entry.name == name)
    }

    /// Asserts that every entry is complete. The tests of a registry call it.
    ///
    /// # Panics
    /// Panics if an entry is incomplete. The message names this entry.
    pub fn assert_complete(&self) {
        assert!(self.find("nothing").is_none());
        for entry in self.0 {
            let Entry { name, summary, doc, params, .. } = entry;
            assert!(std::ptr::eq(self.find(name).unwrap(), *entry), "two entries {name}");
            assert!((entry.check)(&entry.defaults()).is_ok(), "the defaults of {name}");
            assert!(doc.ends_with('.') && !summary.ends_with('.'), "the documentation of {name}");
            assert!(params.len() <= PARAMS_MAX, "the parameters of {name}");
            for (index, param) in params.iter().enumerate() {
                let of = format!("{} of {name}", param.name);
                assert!(param.range.contains(param.default), "the default of {of}");
                assert!(param.doc.ends_with('.') && !param.unit.is_empty(), "the words of {of}");
                let twin = params[..index].iter().any(|other| other.name == param.name);
                assert!(!twin, "two {of}");
            }
        }
    }
}

impl<K: Kind> std::ops::Deref for Registry<K> {
    type Target = [&'static Entry<K>];

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

/// The values of an entry's parameters, each within its range.
pub struct Values<K: Kind> {
    entry: &'static Entry<K>,
    /// The values, in the order of the entry's parameters.
    values: [f64; PARAMS_MAX],
}

impl<K: Kind> Values<K> {
    /// Returns the value of a parameter.
    ///
    /// # Panics
    /// Panics if the entry has no parameter of this name.
    pub fn of(&self, param: &Param) -> f64 {
        let index = self.entry.params.iter().position(|known| known.name == param.name);
        self.values[index.expect("an entry asks for its own parameters")]
    }

    /// Returns the entry to which the parameters belong.
    pub fn entry(&self) -> &'static Entry<K> {
        self.entry
    }

    /// Returns every parameter with its value.
    pub fn each(&self) -> impl Iterator<Item = (&'static Param, f64)> {
        self.entry.params.iter().copied().zip(self.values)
    }
}

// Derived implementations would require these traits of the kind too.
impl<K: Kind> Clone for Values<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kind> Copy for Values<K> {}

impl<K: Kind> PartialEq for Values<K> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.entry, other.entry) && self.values == other.values
    }
}

impl<K: Kind> fmt::Debug for Values<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.each().map(|(param, value)| (param.name, value));
        write!(f, "{:?} ", self.entry.name)?;
        f.debug_map().entries(each).finish()
    }
}

/// An error in the value of a parameter.
#[derive(Debug)]
pub enum Wrong {
    /// No parameter of the algorithm has this name.
    Unknown(String),
    /// The value is outside the range of the parameter.
    OutOfRange(&'static Param, f64),
    /// The values of several parameters do not fit together. The text states the condition that
    /// they must meet.
    Contradiction(&'static str),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no parameter `{name}`"),
            Self::OutOfRange(Param { name, range, .. }, value) => {
                write!(f, "{name} = {value}, but it must be {range}")
            }
            Self::Contradiction(needed) => {
                write!(f, "the values do not fit together: they must have {needed}")
            }
        }
    }
}

impl std::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_range_has_no_fractions() {
        let (real, whole) = (Range::Real(0.5, 2.0), Range::Whole(1, 9));
        assert!([0.5, 1.25, 2.0].into_iter().all(|value| real.contains(value)));
        assert!([0.4, 2.1, f64::NAN].into_iter().all(|value| !real.contains(value)));
        assert!([1.0, 4.0, 9.0].into_iter().all(|value| whole.contains(value)));
        let wrong = [0.0, 1.5, 8.999, 10.0, f64::NAN, f64::INFINITY];
        assert!(wrong.into_iter().all(|value| !whole.contains(value)));
        assert_eq!([-1.0, 1.3, 7.0].map(|value| real.nearest(value)), [0.5, 1.3, 2.0]);
        assert_eq!([0.3, 1.6, 9.7].map(|value| whole.nearest(value)), [1.0, 2.0, 9.0]);
    }
}
