//! Enums whose variants have no fields.

/// Defines an enum whose variants have no fields, and the list `ALL` of its variants.
///
/// If the variants have names, the macro also defines the function `name`, and the list `NAMED` of
/// all names with their variants.
///
/// ```
/// use tidegate_world::unit_enum;
///
/// unit_enum! {
///     /// The colour of a lamp.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Colour {
///         /// The lamp is red.
///         Red = "red",
///         /// The lamp is pale green.
///         PaleGreen = "pale-green",
///     }
/// }
///
/// assert_eq!(Colour::ALL, [Colour::Red, Colour::PaleGreen]);
/// assert_eq!(Colour::PaleGreen.name(), "pale-green");
/// assert_eq!(Colour::NAMED, [("red", Colour::Red), ("pale-green", Colour::PaleGreen)]);
/// ```
#[macro_export]
macro_rules! unit_enum {
    (@names $vis:vis $Enum:ident $($Variant:ident,)+) => {};
    (@names $vis:vis $Enum:ident $($Variant:ident $name:literal,)+) => {
        impl $Enum {
            /// All names with their variants, in the order of [`ALL`](Self::ALL).
            $vis const NAMED: [(&'static str, Self); Self::ALL.len()] =
                [$(($name, Self::$Variant)),+];

            /// Returns the name of the variant.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }
        }
    };
    (
        $(#[$attribute:meta])*
        $vis:vis enum $Enum:ident {
            $($(#[$variant_attribute:meta])* $Variant:ident $(= $name:literal)?,)+
        }
    ) => {
        $(#[$attribute])*
        $vis enum $Enum {
            $($(#[$variant_attribute])* $Variant,)+
        }

        impl $Enum {
            /// All variants, in the order of their definition.
            $vis const ALL: [Self; [$(stringify!($Variant)),+].len()] = [$(Self::$Variant),+];
        }

        $crate::unit_enum! { @names $vis $Enum $($Variant $($name)?,)+ }
    };
}
