//! What taints a node should have after `kubectl taint`-like words.

use thiserror::Error;

use crate::cluster::fact::Taint;
use crate::cluster::selector::{is_label_value, is_qualified_name};

/// The author of this taint knows the machine to be off. Kubernetes then removes its pods and detaches its volumes.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Why words for taints were refused; the sentences are kubectl's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TaintError {
    /// The word has not the form `key=value:Effect`, `key:Effect-` or `key-`, or its key or value is no label.
    #[error("invalid taint spec: {0}")]
    Spec(String),
    /// The effect is none of Kubernetes'.
    #[error("invalid taint effect: {0}, unsupported taint effect")]
    Effect(String),
    /// Two words put on a taint with the same key and effect.
    #[error("duplicated taints with the same key and effect: {0}")]
    Duplicate(String),
    /// The same taint is put on and taken off.
    #[error("can not both modify and remove the following taint(s) in the same command: {0}")]
    Contradiction(String),
    #[error("node {node} already has {keys} taint(s) with same effect(s) and --overwrite is false")]
    /// The node has such a taint already, and nothing is to be overwritten.
    Exists {
        /// Which node.
        node: String,
        /// The keys of those taints, separated by commas.
        keys: String,
    },
    /// What is to be taken off is not there.
    #[error("taint \"{0}\" not found")]
    Missing(String),
}

/// A removal names a key, and perhaps one effect of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The taint's key.
    pub key: String,
    /// Only the taint with this effect; `None` takes all of this key off.
    pub effect: Option<String>,
}

/// What is to be done to the taints of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaintChange {
    /// To be put on, or to get another value.
    pub add: Vec<Taint>,
    /// To be taken off.
    pub remove: Vec<Removal>,
}

/// The word kubectl prints for what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Taints were put on and taken off, or overwritten.
    Modified,
    /// Taints were put on.
    Tainted,
    /// Taints were taken off.
    Untainted,
}

impl Changed {
    /// The word that kubectl prints.
    pub fn word(self) -> &'static str {
        match self {
            Self::Modified => "modified",
            Self::Tainted => "tainted",
            Self::Untainted => "untainted",
        }
    }
}

/// Reads words such as `key=value:NoSchedule`, `key:NoExecute-` and `key-`.
pub fn parse(words: &[String]) -> Result<TaintChange, TaintError> {
    let mut change = TaintChange::default();
    for word in words {
        if let Some(removal) = word.strip_suffix('-') {
            let (key, effect) = match removal.split_once(':') {
                Some((key, effect)) => (key, Some(effect)),
                None => (removal, None),
            };
            let key = key.split_once('=').map_or(key, |(key, _)| key);
            if !is_qualified_name(key) {
                return Err(TaintError::Spec(word.clone()));
            }
            if let Some(effect) = effect {
                known_effect(effect)?;
            }
            change.remove.push(Removal { key: key.to_owned(), effect: effect.map(str::to_owned) });
            continue;
        }
        let taint = parse_addition(word)?;
        if change.add.iter().any(|known| known.same_as(&taint)) {
            return Err(TaintError::Duplicate(word.clone()));
        }
        change.add.push(taint);
    }
    let both: Vec<String> = change
        .add
        .iter()
        .filter(|taint| {
            change.remove.iter().any(|removal| {
                removal.key == taint.key
                    && removal.effect.as_ref().is_none_or(|effect| *effect == taint.effect)
            })
        })
        .map(|taint| format!("{{\"{}\" \"{}\"}}", taint.key, taint.effect))
        .collect();
    if both.is_empty() { Ok(change) } else { Err(TaintError::Contradiction(both.join(","))) }
}

fn parse_addition(word: &str) -> Result<Taint, TaintError> {
    let invalid = || TaintError::Spec(word.to_owned());
    let (name, effect) = word.split_once(':').ok_or_else(invalid)?;
    if effect.contains(':') {
        return Err(invalid());
    }
    known_effect(effect)?;
    let (key, value) = match name.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (name, None),
    };
    if !is_qualified_name(key) || !value.is_none_or(is_label_value) {
        return Err(invalid());
    }
    let value = value.filter(|value| !value.is_empty()).map(str::to_owned);
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
}

fn known_effect(effect: &str) -> Result<(), TaintError> {
    if matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        Ok(())
    } else {
        Err(TaintError::Effect(effect.to_owned()))
    }
}

/// The list a node should have, new taints first, and the word for the change.
pub fn apply(
    node: &str,
    have: &[Taint],
    change: &TaintChange,
    overwrite: bool,
) -> Result<(Vec<Taint>, Changed), TaintError> {
    if !overwrite {
        let existing: Vec<&str> = change
            .add
            .iter()
            .filter(|taint| have.iter().any(|known| known.same_as(taint)))
            .map(|taint| taint.key.as_str())
            .collect();
        if !existing.is_empty() {
            let keys = existing.join(",");
            return Err(TaintError::Exists { node: node.to_owned(), keys });
        }
    }
    let mut wanted = change.add.clone();
    wanted.extend(have.iter().filter(|known| !change.add.iter().any(|taint| taint.same_as(known))).cloned());
    for removal in &change.remove {
        let before = wanted.len();
        wanted.retain(|taint| {
            taint.key != removal.key || removal.effect.as_ref().is_some_and(|effect| *effect != taint.effect)
        });
        if wanted.len() == before {
            let name = match &removal.effect {
                Some(effect) => format!("{}:{effect}", removal.key),
                None => removal.key.clone(),
            };
            return Err(TaintError::Missing(name));
        }
    }
    let word = if overwrite || (!change.add.is_empty() && !change.remove.is_empty()) {
        Changed::Modified
    } else if change.add.is_empty() {
        Changed::Untainted
    } else {
        Changed::Tainted
    };
    Ok((wanted, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn taints(texts: &[&str]) -> Vec<Taint> {
        parse(&words(texts)).unwrap().add
    }

    fn changed(
        have: &[&str],
        change: &[&str],
        overwrite: bool,
    ) -> Result<(Vec<String>, Changed), TaintError> {
        let (list, word) = apply("n", &taints(have), &parse(&words(change))?, overwrite)?;
        Ok((list.iter().map(ToString::to_string).collect(), word))
    }

    #[test]
    fn a056_a058_taints_are_added_in_front() {
        let (list, word) =
            changed(&["old:NoExecute"], &["foo=bar:NoSchedule", "baz:PreferNoSchedule"], false).unwrap();
        assert_eq!(list, ["foo=bar:NoSchedule", "baz:PreferNoSchedule", "old:NoExecute"]);
        assert_eq!(word, Changed::Tainted);
    }

    #[test]
    fn a057_a_value_is_replaced_with_overwrite() {
        let (list, word) = changed(&["foo=bar:NoSchedule"], &["foo=barz:NoSchedule"], true).unwrap();
        assert_eq!(
            (list.as_slice(), word),
            (["foo=barz:NoSchedule".to_owned()].as_slice(), Changed::Modified)
        );
    }

    #[test]
    fn a059_a060_removal_by_key_and_effect_or_by_key() {
        let have = ["foo=bar:NoSchedule", "foo=bar:PreferNoSchedule"];
        assert_eq!(changed(&have, &["foo:NoSchedule-"], false).unwrap().0, ["foo=bar:PreferNoSchedule"]);
        let (list, word) = changed(&have, &["foo-"], false).unwrap();
        assert!(list.is_empty());
        assert_eq!(word, Changed::Untainted);
    }

    #[test]
    fn a061_one_is_updated_and_the_other_removed() {
        let have = ["foo=bar:NoSchedule", "bar=foo:NoSchedule"];
        let (list, word) = changed(&have, &["foo=new:NoSchedule", "bar:NoSchedule-"], true).unwrap();
        assert_eq!(list, ["foo=new:NoSchedule"]);
        assert_eq!(word, Changed::Modified);
    }

    #[rstest::rstest]
    #[case(&["nospecialchars^@=banana:NoSchedule"])]
    #[case(&["foo=bar:NoExcute"])]
    #[case(&["foo=bar:NoSchedule", "foo=baz:NoSchedule"])]
    #[case(&["foo=bar:NoSchedule", "foo:NoSchedule-"])]
    #[case(&["foo=bar:NoSchedule", "foo-"])]
    #[case(&["foo=bar"])]
    #[case(&["foo=bar:NoSchedule:x"])]
    fn a062_words_that_make_no_sense_are_refused(#[case] texts: &[&str]) {
        assert!(parse(&words(texts)).is_err());
    }

    #[test]
    fn a063_an_existing_taint_needs_overwrite() {
        let refused = changed(&["foo=bar:NoSchedule"], &["foo=baz:NoSchedule"], false).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "node n already has foo taint(s) with same effect(s) and --overwrite is false"
        );
    }

    #[test]
    fn a065_removing_an_absent_taint_is_an_error() {
        assert_eq!(changed(&[], &["foo-"], false), Err(TaintError::Missing("foo".into())));
    }

    #[test]
    fn a066_no_change_is_modified_with_overwrite_and_untainted_without() {
        assert_eq!(changed(&["a:NoSchedule"], &[], true).unwrap().1, Changed::Modified);
        assert_eq!(changed(&["a:NoSchedule"], &[], false).unwrap().1, Changed::Untainted);
    }
}
