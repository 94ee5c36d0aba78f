//! A time as others wrote it: it goes back unchanged when what stands beside it is written.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text::Text;

/// A time as it was written. What Kubernetes writes (UTC in whole seconds) is kept as a number, which takes less room; any other text stays text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrittenTime(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Seconds(i64),
    /// In a box of its own: it is rare, and must not make the others larger.
    Other(Box<Text>),
}

impl WrittenTime {
    /// A whole second, as Kubernetes writes it.
    pub(super) fn of(seconds: i64) -> Self {
        Self(Form::Seconds(seconds))
    }

    /// The seconds, if it is written as Kubernetes does.
    pub(super) fn seconds(&self) -> Option<i64> {
        match &self.0 {
            Form::Seconds(seconds) => Some(*seconds),
            Form::Other(_) => None,
        }
    }

    /// The time, if the text is one.
    pub fn timestamp(&self) -> Option<Timestamp> {
        match &self.0 {
            Form::Seconds(seconds) => Timestamp::from_second(*seconds).ok(),
            Form::Other(text) => text.parse().ok(),
        }
    }
}

impl From<&str> for WrittenTime {
    fn from(text: &str) -> Self {
        let seconds = text.parse::<Timestamp>().ok().map(Timestamp::as_second);
        let same =
            |seconds: &i64| Timestamp::from_second(*seconds).is_ok_and(|time| time.to_string() == text);
        Self(seconds.filter(same).map_or_else(|| Form::Other(Box::new(text.into())), Form::Seconds))
    }
}

impl From<String> for WrittenTime {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl fmt::Display for WrittenTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.timestamp()) {
            (Form::Other(text), _) => f.write_str(text),
            (Form::Seconds(_), Some(time)) => fmt::Display::fmt(&time, f),
            // Only what is a time is kept as a number.
            (Form::Seconds(_), None) => Ok(()),
        }
    }
}

impl fmt::Debug for WrittenTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for WrittenTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WrittenTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_as_it_was_written() {
        for (text, is_time) in [
            ("2026-01-01T00:00:00Z", true),
            ("2026-01-01T00:00:00.5Z", true),
            ("2026-01-01T00:00:00.000Z", true),
            ("2026-01-01T01:00:00+01:00", true),
            ("1969-12-31T23:59:59Z", true),
            ("", false),
            ("soon", false),
        ] {
            let time = WrittenTime::from(text);
            assert_eq!(time.to_string(), text);
            assert_eq!(time.timestamp(), text.parse().ok());
            assert_eq!(time.timestamp().is_some(), is_time, "{text}");
        }
    }
}
