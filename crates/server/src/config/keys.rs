//! Macros that define a table and its keys. [`table!`](crate::config_table) also makes a struct
//! with a field for each key. [`keys!`](crate::config_keys) binds the keys to the fields of an
//! existing struct. The reader, the diagnostics, the writer, the reference, the JSON schema, the
//! summary and the list of keys that need a restart all use this definition.

use toml::Spanned;

use super::diagnostic::Report;
use super::knob::{Absent, Documented, Knob, Reload, Shape, Table};
use super::section::Section;

/// A struct that has the values of a table's keys.
pub trait Keys: Sized + 'static {
    /// Returns the definition of the table.
    fn table() -> &'static Table;

    /// Returns the keys of the table, in the order of the reference. If a key depends on another
    /// key, the other key comes first.
    fn entries() -> &'static [&'static dyn Entry<Self>];
}

/// A key of a table that is read into `T`.
pub trait Entry<T>: Documented {
    /// Reads the value of the key from `section`, or its default, into `target`. If the value is
    /// invalid or a required key is missing, reports this and returns false.
    fn read(&self, section: &Section<'_, '_>, target: &mut T, report: &mut Report) -> bool;

    /// Reports the key if the file contains it although it has no effect. Does not report it if a
    /// key in `wrong` decides whether it has an effect. `wrong` are the keys with missing or
    /// invalid values.
    fn check_idle(
        &self,
        section: &Section<'_, '_>,
        target: &T,
        wrong: &[&str],
        report: &mut Report,
    );

    /// Returns the value of the key as TOML, or `None` if the key has no value or no effect.
    fn write(&self, target: &T) -> Option<String>;

    /// Returns the default of the key in the same form as [`write`](Self::write), or `None` if
    /// there is no default.
    fn default(&self) -> Option<String>;
}

/// A condition under which a key has an effect.
pub struct Only<T: 'static> {
    /// The name of another key, whose value decides whether this key has an effect.
    pub by: &'static str,
    /// Returns whether the key has an effect with these values of the table.
    pub when: fn(&T) -> bool,
    /// The reason why the key has no effect. It is printed as the label of the underlined key.
    pub why: &'static str,
    /// An alternative to removing the key. It is printed after "remove it, or".
    pub instead: &'static str,
}

/// Functions that get and set the value of a key in a struct.
pub struct Place<T, V> {
    /// Returns the value, if there is one.
    pub get: fn(&T) -> Option<V>,
    /// Stores the value.
    pub set: fn(&mut T, Spanned<V>),
}

/// A key, and the field of `T` for its value.
pub struct Key<T: 'static, S: Shape> {
    knob: Knob<S>,
    place: Place<T, S::Value>,
    reload: Option<Reload>,
    only: Option<&'static Only<T>>,
}

impl<T: 'static, S: Shape> Key<T, S> {
    /// Creates the key `knob` of a table. `reload` says when a changed value applies, or is `None`
    /// if the key belongs to another file than the configuration. `place` gets and sets the value.
    pub const fn new(knob: Knob<S>, reload: Option<Reload>, place: Place<T, S::Value>) -> Self {
        Self { knob, place, reload, only: None }
    }

    /// Adds a condition under which the key has an effect.
    #[must_use]
    pub const fn only(mut self, only: &'static Only<T>) -> Self {
        self.only = Some(only);
        self
    }

    /// Sets the time at which a changed value of this key applies. This time may differ from that
    /// of the other keys of the table.
    #[must_use]
    pub const fn reload(mut self, reload: Reload) -> Self {
        self.reload = Some(reload);
        self
    }
}

impl<T, S: Shape + Sync> Documented for Key<T, S>
where
    Place<T, S::Value>: Sync,
{
    fn name(&self) -> &'static str {
        self.knob.name
    }
    fn describe(&self) -> String {
        self.knob.describe()
    }
    fn absent(&self) -> Absent {
        self.knob.absent
    }
    fn doc(&self) -> &'static str {
        self.knob.doc()
    }
    fn schema(&self) -> serde_json::Value {
        self.knob.schema()
    }
    fn reload(&self) -> Option<Reload> {
        self.reload
    }
    #[cfg(test)]
    fn accepts(&self, value: &Spanned<toml::de::DeValue<'_>>) -> bool {
        self.knob.accepts(value)
    }
}

impl<T, S: Shape + Sync> Entry<T> for Key<T, S>
where
    Place<T, S::Value>: Sync,
{
    fn read(&self, section: &Section<'_, '_>, target: &mut T, report: &mut Report) -> bool {
        if matches!(self.knob.absent, Absent::Means(_)) && !section.has(&self.knob) {
            return true;
        }
        let value = section.value(&self.knob, report);
        let is_right = value.is_some();
        if let Some(value) = value {
            (self.place.set)(target, value);
        }
        is_right
    }

    fn check_idle(
        &self,
        section: &Section<'_, '_>,
        target: &T,
        wrong: &[&str],
        report: &mut Report,
    ) {
        if let Some(only) = self.only
            && !wrong.contains(&only.by)
            && !(only.when)(target)
        {
            section.report_idle(&[self.knob.name], only.why, only.instead, report);
        }
    }

    fn write(&self, target: &T) -> Option<String> {
        if self.only.is_some_and(|only| !(only.when)(target)) {
            return None;
        }
        (self.place.get)(target).map(|value| self.knob.shape.write(&value))
    }

    fn default(&self) -> Option<String> {
        self.knob.default().map(|value| self.knob.shape.write(&value))
    }
}

impl Section<'_, '_> {
    /// Reads every key of `T` into `target`. Returns the names of missing and invalid keys.
    pub fn fill<T: Keys>(&self, target: &mut T, report: &mut Report) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        for entry in T::entries() {
            if !entry.read(self, target, report) {
                wrong.push(entry.name());
            }
        }
        for entry in T::entries() {
            entry.check_idle(self, target, &wrong, report);
        }
        wrong
    }
}

/// Returns the last part of a header: `backend` of `[[pool.backend]]`.
pub const fn last_part(header: &'static str) -> &'static str {
    let bytes = header.as_bytes();
    let (mut from, mut to, mut i) = (0, bytes.len(), 0);
    while i < bytes.len() {
        match bytes[i] {
            b'[' | b'.' => from = i + 1,
            b']' if i < to => to = i,
            _ => {}
        }
        i += 1;
    }
    header.split_at(to).0.split_at(from).1
}

/// Binds the keys of a table to an existing struct. A table of another file than the configuration,
/// such as a scenario, has `None` instead of a `Reload`:
///
/// ```text
/// keys! {
///     /// The documentation of the table.
///     static TABLE: "[table]" 0..=1 Restart, [INNER] => Struct;
///
///     /// The documentation of the key.
///     key "key" (path.of.field) = Whole(1..=9), Default("1");
///     /// An optional key.
///     key "other" (? field) = Flag, Means("none"), only(&ONLY), reload(Reload::Live);
///     /// A key that is not one field.
///     key "third" { |all| all.get(), |all, value| all.set(value) } = Flag, Default("false");
/// }
/// ```
#[macro_export]
macro_rules! config_keys {
    (
        $(#[doc = $doc:literal])*
        $vis:vis static $TABLE:ident: $header:literal $count:literal ..= $most:expr, $reload:ident,
            [$($inner:ident),*] => $Struct:ty;
        $(
            $(#[doc = $key_doc:literal])*
            key $key:tt $place:tt = $shape:expr, $absent:ident $(($text:expr))?
                $(, $option:ident ($value:expr))*;
        )*
    ) => {
        $(#[doc = $doc])*
        $vis static $TABLE: $crate::config::schema::Table = $crate::config::schema::Table {
            header: $header,
            name: $crate::config::schema::last_part($header),
            count: $count..=$most,
            doc: concat!($($doc),*),
            knobs: || {
                let entries = <$Struct as $crate::config::schema::Keys>::entries();
                entries.iter().map(|entry| *entry as &dyn $crate::config::schema::Documented).collect()
            },
            tables: &[$(&$inner),*],
            has_free_keys: false,
        };

        impl $crate::config::schema::Keys for $Struct {
            fn table() -> &'static $crate::config::schema::Table {
                &$TABLE
            }

            fn entries() -> &'static [&'static dyn $crate::config::schema::Entry<Self>] {
                static ENTRIES: &[&dyn $crate::config::schema::Entry<$Struct>] = &[$(
                    &$crate::config::schema::Key::new(
                        $crate::config::schema::Knob {
                            name: $crate::config_name!($key),
                            shape: $shape,
                            absent: $crate::config::schema::Absent::$absent $(($text))?,
                            doc: concat!($($key_doc),*),
                        },
                        $crate::config_keys!(@reload $reload),
                        $crate::config_place!($Struct, $place),
                    )$(.$option($value))*,
                )*];
                ENTRIES
            }
        }
    };
    (@reload None) => { None };
    (@reload $reload:ident) => { Some($crate::config::schema::Reload::$reload) };
}

/// Expands to the name of a key. The argument is the key as written in [`config_keys`].
#[macro_export]
macro_rules! config_name {
    ((@ $field:ident)) => {
        stringify!($field)
    };
    ((@ $field:ident ($key:literal))) => {
        $key
    };
    ($key:literal) => {
        $key
    };
}

/// Expands to the [`Place`] of a key. The arguments are the struct,
/// and the place as written in [`config_keys`].
#[macro_export]
macro_rules! config_place {
    ($Struct:ty, (? $($path:ident).+)) => {
        $crate::config::schema::Place::<$Struct, _> {
            get: |all| all.$($path).+.clone(),
            set: |all, value| all.$($path).+ = Some(value.into_inner()),
        }
    };
    ($Struct:ty, (draft $field:ident: $ty:ty)) => {
        $crate::config::schema::Place::<$Struct, $ty> {
            get: |all| all.$field.as_ref().map(|value| value.get_ref().clone()),
            set: |all, value| all.$field = Some(value),
        }
    };
    ($Struct:ty, ($($path:ident).+)) => {
        $crate::config::schema::Place::<$Struct, _> {
            get: |all| Some(all.$($path).+.clone()),
            set: |all, value| all.$($path).+ = value.into_inner(),
        }
    };
    ($Struct:ty, { $get:expr, $set:expr }) => {
        $crate::config::schema::Place::<$Struct, _> { get: $get, set: $set }
    };
}

/// Defines a table, the struct that is read from it, and a draft with the position of each value in
/// the file. Fields after `+` are not keys: the reader sets them before it calls `finish`.
///
/// ```text
/// table! {
///     /// The documentation of the table.
///     pub static TABLE: "[table]" 0..=1, Restart, [] => Struct, Draft;
///
///     /// The documentation of the key, and of the field.
///     key: u16 = Whole(1..=9), Default("1");
///     /// An optional key with another name than its field.
///     drain("drain_s"): Duration | None = seconds(0..=9), Means("none");
///     +
///     /// A field that is no key.
///     rest: Vec<String>;
/// }
/// ```
#[macro_export]
macro_rules! config_table {
    (
        $(#[doc = $doc:literal])*
        $vis:vis static $TABLE:ident: $header:literal $count:literal ..= $most:expr, $reload:ident,
            [$($inner:ident),*] => $Struct:ident, $Draft:ident;
        $(
            $(#[doc = $key_doc:literal])*
            $field:ident $(($key:literal))? : $ty:ty $(| $none:ident)? = $shape:expr,
                $absent:ident $(($text:expr))? $(, $option:ident ($value:expr))*;
        )*
        $(+ $($(#[doc = $extra_doc:literal])* $extra:ident: $extra_ty:ty;)*)?
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $Struct {
            $($(#[doc = $key_doc])* pub $field: $crate::config_table!(@field $ty $(, $none)?),)*
            $($($(#[doc = $extra_doc])* pub $extra: $extra_ty,)*)?
        }

        /// The table as it was read so far. Missing parts have been reported.
        #[derive(Debug, Default)]
        $vis struct $Draft {
            /// The position of the header of the table in the file.
            #[allow(dead_code, reason = "the span of some tables is never read")]
            pub span: std::ops::Range<usize>,
            /// Keys whose values are invalid.
            pub wrong: Vec<&'static str>,
            $($(#[doc = $key_doc])* pub $field: Option<toml::Spanned<$ty>>,)*
            $($($(#[doc = $extra_doc])* pub $extra: Option<$extra_ty>,)*)?
        }

        impl $Draft {
            /// Reads the keys of the table.
            $vis fn read(
                section: &$crate::config::schema::Section<'_, '_>,
                report: &mut $crate::config::schema::Report,
            ) -> Self {
                let mut draft = Self { span: section.span(), ..Self::default() };
                draft.wrong = section.fill(&mut draft, report);
                draft
            }

            /// Returns the table, or `None` if a part of it is missing or invalid.
            $vis fn finish(self) -> Option<$Struct> {
                Some($Struct {
                    $($field: $crate::config_table!(@take self.$field $(, $none)?),)*
                    $($($extra: self.$extra?,)*)?
                })
            }
        }

        impl From<&$Struct> for $Draft {
            fn from(all: &$Struct) -> Self {
                Self {
                    $($field: $crate::config_table!(@place all.$field $(, $none)?),)*
                    ..Self::default()
                }
            }
        }

        $crate::config_keys! {
            $(#[doc = $doc])*
            $vis static $TABLE: $header $count ..= $most, $reload, [$($inner),*] => $Draft;
            $(
                $(#[doc = $key_doc])*
                key (@$field $(($key))?) (draft $field: $ty) = $shape, $absent $(($text))?
                    $(, $option($value))*;
            )*
        }
    };
    (@field $ty:ty) => { $ty };
    (@field $ty:ty, None) => { Option<$ty> };
    (@take $value:expr) => { $value?.into_inner() };
    (@take $value:expr, None) => { $value.map(toml::Spanned::into_inner) };
    (@place $value:expr) => { Some(toml::Spanned::new(0..0, $value.clone())) };
    (@place $value:expr, None) => { $value.clone().map(|value| toml::Spanned::new(0..0, value)) };
}

pub(crate) use {config_keys as keys, config_table as table};
