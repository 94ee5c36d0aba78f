//! The form of the tables in which the families of reasons are written down.
//!
//! ```text
//! /// What it means.
//! Code {
//!     /// What the fact is.
//!     fact: Type = value in the example,
//! } => {
//!     severity: Note | Warning | Progress | Slow | Never,
//!     sentence: (what is the case, as the rest of a sentence that began with the object),
//!     brief: (a few words for where there is no room for the sentence),
//!     remedy: (what the reader can do about it),
//!     kubectl: (the words of `kubectl drain`, by which it groups pods),
//!     also: { the facts of a second example, where the severity depends on them },
//! }
//! ```
//!
//! Texts are written as for `format!` and may name the facts. All after the sentence can be left out, and
//! `remedy` and `kubectl` may hold only `if (…)`, which may name the facts, too.

use super::{Reason, Severity, Subject};

/// What a row says of a reason.
pub(super) trait Row {
    fn code(&self) -> &'static str;
    fn meaning(&self) -> &'static str;
    fn severity(&self) -> Severity;
    fn sentence(&self) -> String;
    fn brief(&self) -> Option<String>;
    fn remedy(&self) -> Option<String>;
    fn kubectl(&self) -> Option<String>;
}

/// A family of reasons, as the documents show it.
pub(super) trait Table: Row + Into<Reason> {
    const TITLE: &'static str;
    const TOLD: &'static str;
    const SUBJECT: Subject;

    fn examples() -> Vec<Self>;
}

/// Makes an enum of a table, with one variant per row.
macro_rules! family {
    (
        $(#[$about:meta])*
        $family:ident in Reason::$variant:ident {
            title: $title:literal,
            told: $told:literal,
            subject: $subject:ident,
        }
        $(
            $(#[doc = $meaning:literal])+
            $code:ident $({ $($(#[$detail:meta])* $fact:ident: $kind:ty = $example:expr),+ $(,)? })? => {
                severity: $severity:expr,
                sentence: $sentence:tt,
                $(brief: $brief:tt,)?
                $(remedy $(if $helps:tt)?: $remedy:tt,)?
                $(kubectl $(if $known:tt)?: $kubectl:tt,)?
                $(also: $also:tt,)?
            }
        )+
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
        #[serde(tag = "code", rename_all_fields = "camelCase")]
        pub enum $family {
            $($(#[doc = $meaning])+ $code $({ $($(#[$detail])* $fact: $kind),+ })?),+
        }

        #[allow(unused_variables, reason = "a text names the facts it needs")]
        #[allow(clippy::useless_format, reason = "and some need none")]
        impl $crate::reasons::table::Row for $family {
            fn code(&self) -> &'static str {
                match self {
                    $(Self::$code { .. } => stringify!($code)),+
                }
            }

            fn meaning(&self) -> &'static str {
                match self {
                    $(Self::$code { .. } => concat!($($meaning),+).trim_ascii()),+
                }
            }

            fn severity(&self) -> $crate::reasons::Severity {
                match self {
                    $(Self::$code $({ $($fact),+ })? => $severity),+
                }
            }

            fn sentence(&self) -> String {
                match self {
                    $(Self::$code $({ $($fact),+ })? => format! $sentence),+
                }
            }

            fn brief(&self) -> Option<String> {
                match self {
                    $(Self::$code $({ $($fact),+ })? => $crate::reasons::table::words!($(: $brief)?)),+
                }
            }

            fn remedy(&self) -> Option<String> {
                match self {
                    $(Self::$code $({ $($fact),+ })? => {
                        $crate::reasons::table::words!($($(if $helps)?: $remedy)?)
                    })+
                }
            }

            fn kubectl(&self) -> Option<String> {
                match self {
                    $(Self::$code $({ $($fact),+ })? => {
                        $crate::reasons::table::words!($($(if $known)?: $kubectl)?)
                    })+
                }
            }
        }

        impl $crate::reasons::table::Table for $family {
            const TITLE: &'static str = $title;
            const TOLD: &'static str = $told;
            const SUBJECT: $crate::reasons::Subject = $crate::reasons::Subject::$subject;

            fn examples() -> Vec<Self> {
                vec![$(Self::$code $({ $($fact: $example),+ })?, $(Self::$code $also,)?)+]
            }
        }

        impl From<$family> for $crate::reasons::Reason {
            fn from(reason: $family) -> Self {
                Self::$variant(reason)
            }
        }
    };
}

/// A text that may be left out of a row, or hold only sometimes.
macro_rules! words {
    () => {
        None
    };
    (: $words:tt) => {
        Some(format! $words)
    };
    (if $holds:tt: $words:tt) => {
        $holds.then(|| format! $words)
    };
}

pub(super) use {family, words};
