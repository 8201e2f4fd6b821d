//! Parameters of laws and policies, and their values.
//!
//! A list of such things (laws of overload control, policies of balancing) describes each by a
//! [`Tunable`] entry. Configuration, documentation and the command line are made from the entries,
//! so they agree.

use std::fmt;

/// The most parameters of one entry.
pub const PARAMS_MAX: usize = 16;

/// A parameter: a number.
#[derive(Debug)]
pub struct Param {
    /// Name in configurations.
    pub name: &'static str,
    /// Meaning: a sentence, in Markdown.
    pub doc: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Default value.
    pub default: f64,
    /// Least value.
    pub min: f64,
    /// Greatest value.
    pub max: f64,
}

/// An entry of a list, with parameters.
pub trait Tunable: Sized + 'static {
    /// Returns its name in configurations.
    fn name(&self) -> &'static str;

    /// Returns its parameters, at most [`PARAMS_MAX`].
    fn params(&self) -> &'static [&'static Param];

    /// Checks values that are each within their bounds.
    ///
    /// # Errors
    /// With what must hold.
    fn check(&self, values: &Values<Self>) -> Result<(), &'static str>;
}

/// The values of an entry's parameters, each within its bounds.
pub struct Values<E: 'static> {
    entry: &'static E,
    /// In the order of the entry's parameters.
    values: [f64; PARAMS_MAX],
}

impl<E: Tunable> Values<E> {
    /// Returns the default of every parameter.
    pub fn defaults(entry: &'static E) -> Self {
        let mut values = [0.0; PARAMS_MAX];
        for (value, param) in values.iter_mut().zip(entry.params()) {
            *value = param.default;
        }
        Self { entry, values }
    }

    /// Returns the defaults, overridden by the `given` values.
    ///
    /// # Errors
    /// With the first value that is [`Wrong`].
    pub fn given(entry: &'static E, given: &[(&str, f64)]) -> Result<Self, Wrong> {
        let mut values = Self::defaults(entry);
        for &(name, value) in given {
            let index = entry.params().iter().position(|param| param.name == name);
            let index = index.ok_or_else(|| Wrong::Unknown(name.to_owned()))?;
            let param = entry.params()[index];
            if !(param.min..=param.max).contains(&value) {
                return Err(Wrong::OutOfBounds(param, value));
            }
            values.values[index] = value;
        }
        entry.check(&values).map_err(Wrong::Contradiction)?;
        Ok(values)
    }

    /// Returns the value of a parameter.
    ///
    /// # Panics
    /// If it is a parameter of another entry.
    pub fn of(&self, param: &Param) -> f64 {
        let index = self.entry.params().iter().position(|known| known.name == param.name);
        self.values[index.expect("an entry asks for its own parameters")]
    }

    /// Returns the entry of these parameters.
    pub fn entry(&self) -> &'static E {
        self.entry
    }

    /// Returns every parameter with its value.
    pub fn each(&self) -> impl Iterator<Item = (&'static Param, f64)> {
        self.entry.params().iter().copied().zip(self.values)
    }
}

// Derived, these would require the same traits of the entry.
impl<E> Clone for Values<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Values<E> {}

impl<E> PartialEq for Values<E> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.entry, other.entry) && self.values == other.values
    }
}

impl<E: Tunable> fmt::Debug for Values<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.each().map(|(param, value)| (param.name, value));
        write!(f, "{:?} ", self.entry.name())?;
        f.debug_map().entries(each).finish()
    }
}

/// An error in the value of a parameter.
#[derive(Debug)]
pub enum Wrong {
    /// There is no such parameter.
    Unknown(String),
    /// The value is beyond the bounds of the parameter.
    OutOfBounds(&'static Param, f64),
    /// The values contradict each other: this must hold.
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
