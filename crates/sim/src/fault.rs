//! The faults of a line, each with its class in the taxonomy F1–F24.

use std::fmt;
use std::str::FromStr;

use crate::book::Class;

/// What becomes of a request, or of the process that sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The connection is refused: nothing was sent.
    Refused,
    /// The connection breaks before the server does anything, and the client cannot tell.
    Dropped,
    /// The server carries it out, and the answer does not come.
    Lost,
    /// The client gives up, and the server carries it out long after that.
    Late,
    /// Answer and effect come seconds later.
    Slow,
    /// 429 with Retry-After.
    Busy,
    /// 500.
    Broken,
    /// 503 without an effect.
    Unavailable,
    /// Somebody else writes the same object just before.
    Rival,
    /// The process dies before the request is sent.
    DiesBefore,
    /// The process dies after the server has carried it out.
    DiesAfter,
    /// The process stands still with this request in flight, beyond the end of a lease, and then goes on.
    Frozen,
    /// The watch ends after some events.
    Cut,
    /// The watch ends in the middle of an event.
    Torn,
    /// The watch ends with 410: what it was at is compacted.
    Expired,
    /// What the watch tells comes many seconds late: the view is stale.
    Stale,
    /// The watch stays open and says nothing any more.
    Silent,
}

/// All faults of a line.
pub const ALL: [Kind; 17] = [
    Kind::Refused,
    Kind::Dropped,
    Kind::Lost,
    Kind::Late,
    Kind::Slow,
    Kind::Busy,
    Kind::Broken,
    Kind::Unavailable,
    Kind::Rival,
    Kind::DiesBefore,
    Kind::DiesAfter,
    Kind::Frozen,
    Kind::Cut,
    Kind::Torn,
    Kind::Expired,
    Kind::Stale,
    Kind::Silent,
];

impl Kind {
    /// The class in the taxonomy.
    pub fn class(self) -> &'static str {
        match self {
            Self::Cut | Self::Torn => "F1",
            Self::Expired => "F2",
            Self::Stale => "F3",
            Self::Silent => "F4",
            Self::DiesBefore | Self::DiesAfter => "F5",
            Self::Rival => "F7",
            Self::Lost | Self::Late => "F9",
            Self::Frozen => "F10",
            Self::Refused | Self::Dropped | Self::Busy | Self::Broken | Self::Unavailable => "F11",
            Self::Slow => "F13",
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Dropped => "dropped",
            Self::Lost => "lost",
            Self::Late => "late",
            Self::Slow => "slow",
            Self::Busy => "busy",
            Self::Broken => "broken",
            Self::Unavailable => "unavailable",
            Self::Rival => "rival",
            Self::DiesBefore => "dies-before",
            Self::DiesAfter => "dies-after",
            Self::Frozen => "frozen",
            Self::Cut => "cut",
            Self::Torn => "torn",
            Self::Expired => "expired",
            Self::Stale => "stale",
            Self::Silent => "silent",
        }
    }

    /// Whether it can happen to a request of this class.
    pub fn fits(self, class: Class) -> bool {
        match self {
            Self::Cut | Self::Torn | Self::Expired | Self::Stale | Self::Silent => class == Class::Watch,
            Self::Late | Self::Lost | Self::Rival | Self::DiesAfter => class == Class::Write,
            Self::Refused | Self::Dropped | Self::Broken | Self::Unavailable | Self::DiesBefore => true,
            Self::Slow | Self::Busy | Self::Frozen => class != Class::Watch,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = ALL.into_iter().find(|kind| kind.word() == text);
        found.ok_or_else(|| {
            let known: Vec<_> = ALL.into_iter().map(Self::word).collect();
            format!("there is no fault '{text}'; there are {}", known.join(", "))
        })
    }
}
