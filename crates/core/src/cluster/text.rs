//! Text that repeats: namespaces, names of nodes, label keys, reasons. Clones share it, and a [`super::pool::Pool`] makes equal ones one.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use arcstr::ArcStr;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text that is never changed in place, one word wide. No text at all takes no memory of its own.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(ArcStr);

/// A short list of such texts, which many objects have alike.
pub type Texts = Arc<[Text]>;

impl Text {
    /// As a plain string slice.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether nothing but a pool holds it.
    pub(super) fn is_unused(&self) -> bool {
        ArcStr::strong_count(&self.0).is_none_or(|holders| holders == 1)
    }
}

// As its text, by which it can be found.
impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(ArcStr::from(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<&Self> for Text {
    fn from(text: &Self) -> Self {
        text.clone()
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.as_str().to_owned()
    }
}

impl From<&Text> for String {
    fn from(text: &Text) -> Self {
        text.as_str().to_owned()
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Text {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<Text> for String {
    fn eq(&self, other: &Text) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<Text> for str {
    fn eq(&self, other: &Text) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<Text> for &str {
    fn eq(&self, other: &Text) -> bool {
        *self == other.as_str()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Reader)
    }
}

/// Takes the text as it lies in what is read, without a copy in between.
struct Reader;

impl Visitor<'_> for Reader {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_word_wide_and_so_is_one_that_may_be_missing() {
        assert_eq!((size_of::<Text>(), size_of::<Option<Text>>()), (size_of::<usize>(), size_of::<usize>()));
    }

    #[test]
    fn equal_texts_are_equal_and_in_order_wherever_they_come_from_and_an_empty_one_is_held_by_nobody() {
        let (shared, other) = (Text::from("node-1"), Text::from(String::from("node-1")));
        assert_eq!((&shared, &shared.clone()), (&other, &other));
        assert!(Text::default() < shared && shared.as_str() < "node-2");
        assert_eq!((Text::from(""), Text::default().as_str()), (Text::default(), ""));
        assert!(Text::default().is_unused() && shared.is_unused());
        let held = shared.clone();
        assert!(!held.is_unused());
    }
}
