//! Enums of keywords.

/// Declares an enum of keywords: each variant with its spelling. `ALL` are its variants in order, and `as_str` is the
/// spelling of one; with `name;` before the enum, `name` is.
///
/// ```
/// idlewise_core::words! {
///     /// Who decides.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Who {
///         /// The kernel.
///         Kernel = "kernel",
///         /// The hardware.
///         Hardware = "HW",
///     }
/// }
/// assert_eq!(Who::ALL, [Who::Kernel, Who::Hardware]);
/// assert_eq!(Who::Hardware.as_str(), "HW");
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$outer:meta])* $vis:vis enum $($rest:tt)*) => {
        $crate::words! { as_str; $(#[$outer])* $vis enum $($rest)* }
    };
    ($spelling:ident; $(#[$outer:meta])* $vis:vis enum $name:ident {
        $($(#[$inner:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$outer])*
        $vis enum $name { $($(#[$inner])* $variant,)* }

        impl $name {
            /// All of them, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// Returns the spelling.
            pub const fn $spelling(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}
