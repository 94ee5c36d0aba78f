//! A small map of text to text, such as labels: in order, shared, and without any memory of its own when it is empty.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::selector::Selector;
use super::text::Text;

/// Text under text, in the order of keys. Keys and values are apart, because the keys of many maps are the same where their values are not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TextMap(Option<Pairs>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pairs {
    keys: Arc<[Text]>,
    values: Arc<[Text]>,
}

impl TextMap {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    fn position(&self, key: &str) -> Option<usize> {
        self.0.as_ref()?.keys.binary_search_by(|known| known.as_str().cmp(key)).ok()
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&Text> {
        let position = self.position(key)?;
        self.0.as_ref()?.values.get(position)
    }

    /// Whether there is a value under a key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// Whether a label selector takes an object with these labels.
    pub fn satisfies(&self, selector: &Selector) -> bool {
        selector.matches_with(|key| self.get(key).map(Text::as_str))
    }

    /// All pairs, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Text)> {
        self.0.iter().flat_map(|pairs| pairs.keys.iter().zip(pairs.values.iter()))
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Text> {
        self.iter().map(|(key, _)| key)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Puts a value under a key. Everything is copied: this is for few changes of small maps.
    pub fn insert(&mut self, key: Text, value: Text) -> Option<Text> {
        let before = self.get(&key).cloned();
        self.extend([(key, value)]);
        before
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) {
        *self = self.iter().filter(|(known, _)| *known != key).collect();
    }

    /// The same with other pieces of text, which must say the same.
    pub(super) fn replaced(&self, pair: impl FnMut((&Text, &Text)) -> (Text, Text)) -> Self {
        Self::sorted(self.iter().map(pair).unzip())
    }

    /// The keys, for who knows another copy of them.
    pub(super) fn keys_mut(&mut self) -> Option<&mut Arc<[Text]>> {
        self.0.as_mut().map(|pairs| &mut pairs.keys)
    }

    /// Whether nothing but a pool holds it.
    pub(super) fn is_unused(&self) -> bool {
        self.0.as_ref().is_none_or(|pairs| Arc::strong_count(&pairs.values) == 1)
    }

    fn sorted((keys, values): (Vec<Text>, Vec<Text>)) -> Self {
        Self((!keys.is_empty()).then(|| Pairs { keys: keys.into(), values: values.into() }))
    }
}

impl<K: Into<Text>, V: Into<Text>> Extend<(K, V)> for TextMap {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        let more: Vec<(Text, Text)> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        let known = self.iter().map(|(key, value)| (key.clone(), value.clone()));
        *self = known.chain(more).collect();
    }
}

/// Of equal keys the last counts, as in any map.
impl<K: Into<Text>, V: Into<Text>> FromIterator<(K, V)> for TextMap {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let sorted: BTreeMap<Text, Text> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self::sorted(sorted.into_iter().unzip())
    }
}

impl<K: Into<Text>, V: Into<Text>> From<BTreeMap<K, V>> for TextMap {
    fn from(map: BTreeMap<K, V>) -> Self {
        map.into_iter().collect()
    }
}

impl<K: Into<Text>, V: Into<Text>, const N: usize> From<[(K, V); N]> for TextMap {
    fn from(pairs: [(K, V); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl fmt::Debug for TextMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_a_map_would_hold() {
        let mut map = TextMap::from([("b", "1"), ("a", "2"), ("b", "3")]);
        assert_eq!(
            map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>(),
            ["a=2", "b=3"]
        );
        assert_eq!(map.get("b").map(Text::as_str), Some("3"));
        assert!(map.contains_key("a") && !map.contains_key("c") && map.get("").is_none());
        assert_eq!(map.insert("a".into(), "4".into()), Some("2".into()));
        map.remove("b");
        assert_eq!(map, TextMap::from([("a", "4")]));
        map.remove("a");
        assert_eq!((map.is_empty(), map), (true, TextMap::new()));
    }
}
