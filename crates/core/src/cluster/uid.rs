//! The identity of one incarnation of an object.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text::Text;

/// The identity of one incarnation of an object: a pod re-created under its old name has another one.
///
/// Every server in use writes UUIDs, and those are kept as sixteen bytes; any other text stays text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    Other(Text),
    Uuid([u8; 16]),
}

impl Uid {
    /// The identity as it is written.
    pub fn text(&self) -> Text {
        match &self.0 {
            Form::Other(text) => text.clone(),
            Form::Uuid(bytes) => written(u128::from_be_bytes(*bytes)).into(),
        }
    }
}

fn written(uuid: u128) -> String {
    let [a, b, c, d] = [96, 80, 64, 48].map(|bits| uuid >> bits & 0xffff_ffff);
    format!(
        "{a:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        b & 0xffff,
        c & 0xffff,
        d & 0xffff,
        uuid & 0xffff_ffff_ffff
    )
}

/// The UUID in a text that is as it would be written again.
fn uuid(text: &str) -> Option<u128> {
    let digits: String = text.split('-').collect();
    u128::from_str_radix(&digits, 16).ok().filter(|uuid| written(*uuid) == text)
}

impl<T: AsRef<str> + Into<Text>> From<T> for Uid {
    fn from(text: T) -> Self {
        match uuid(text.as_ref()) {
            Some(uuid) => Self(Form::Uuid(uuid.to_be_bytes())),
            None => Self(Form::Other(text.into())),
        }
    }
}

impl Default for Uid {
    fn default() -> Self {
        Self(Form::Other(Text::default()))
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, other: &str) -> bool {
        self.text() == *other
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_again_as_it_was_whether_it_is_a_uuid_or_not() {
        let canonical = "0f8fad5b-d9cb-469f-a165-70867728950e";
        assert!(matches!(Uid::from(canonical).0, Form::Uuid(_)));
        for text in [
            canonical,
            "",
            "u",
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "0f8fad5b-d9cb-469f-a165-70867728950g",
            "0f8fad5bd9cb469fa16570867728950e",
            "0f8fad5b0d9cb0469f0a165070867728950e",
            "äääääääääääääääääääääääääääääääääää",
        ] {
            let uid = Uid::from(text);
            assert_eq!((uid.to_string(), uid.text().as_str()), (text.to_owned(), text));
            assert!(uid == *text && uid != *"another");
            assert_eq!(serde_json::from_value::<Uid>(serde_json::json!(uid)).unwrap(), uid);
        }
    }

    #[test]
    fn uuids_are_in_the_order_of_their_texts() {
        let of = |text: &str| Uid::from(text);
        assert!(of("0f8fad5b-d9cb-469f-a165-70867728950e") < of("a08fad5b-d9cb-469f-a165-70867728950e"));
    }
}
