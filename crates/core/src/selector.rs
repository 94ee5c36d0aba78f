//! Label selectors: the textual form of the command line and the structured form of API objects.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectorError {
    #[error("found '{found}', expected {expected}")]
    Unexpected { found: String, expected: &'static str },
    #[error("'{0}' is not a valid label key")]
    Key(String),
    #[error("'{0}' is not a valid label value")]
    Value(String),
    #[error("unknown operator '{0}'")]
    Operator(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    Equals(String, String),
    Differs(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    /// `key > n` and `key < n` compare labels that are integers; only nodes are selected this way in practice.
    Greater(String, i64),
    Less(String, i64),
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Equals(key, value) => labels.get(key) == Some(value),
            Self::Differs(key, value) => labels.get(key) != Some(value),
            Self::In(key, values) => labels.get(key).is_some_and(|have| values.contains(have)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|have| !values.contains(have)),
            Self::Exists(key) => labels.contains_key(key),
            Self::Absent(key) => !labels.contains_key(key),
            Self::Greater(key, bound) => integer(labels, key).is_some_and(|have| have > *bound),
            Self::Less(key, bound) => integer(labels, key).is_some_and(|have| have < *bound),
        }
    }
}

fn integer(labels: &BTreeMap<String, String>, key: &str) -> Option<i64> {
    labels.get(key)?.parse().ok()
}

/// All requirements must hold. [`Selector::everything`] has none; [`Selector::nothing`] matches no object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Selector {
    pub fn everything() -> Self {
        Self { requirements: Vec::new(), nothing: false }
    }

    /// What a missing selector means in a disruption budget.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    pub fn of(requirements: Vec<Requirement>) -> Self {
        Self { requirements, nothing: false }
    }

    /// Reads the structured form (`matchLabels`, `matchExpressions` as key, operator, values).
    pub fn from_parts<'a>(
        labels: impl IntoIterator<Item = (&'a String, &'a String)>,
        expressions: impl IntoIterator<Item = (String, String, Vec<String>)>,
    ) -> Result<Self, SelectorError> {
        let mut requirements: Vec<Requirement> =
            labels.into_iter().map(|(key, value)| Requirement::Equals(key.clone(), value.clone())).collect();
        for (key, operator, values) in expressions {
            requirements.push(match operator.as_str() {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::Absent(key),
                _ => return Err(SelectorError::Operator(operator)),
            });
        }
        Ok(Self::of(requirements))
    }

    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Reads the textual form, `a=b,c!=d,e in (f,g),!h,i`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut words = Words { rest: text };
        let mut requirements = Vec::new();
        if words.peek().is_empty() {
            return Ok(Self::everything());
        }
        loop {
            requirements.push(requirement(&mut words)?);
            match words.next() {
                "" => return Ok(Self::of(requirements)),
                "," => {}
                other => return Err(unexpected(other, "',' or the end")),
            }
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, requirement) in self.requirements.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::Equals(key, value) => write!(f, "{key}={value}")?,
                Requirement::Differs(key, value) => write!(f, "{key}!={value}")?,
                Requirement::In(key, values) => write!(f, "{key} in ({})", values.join(","))?,
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(","))?,
                Requirement::Exists(key) => f.write_str(key)?,
                Requirement::Absent(key) => write!(f, "!{key}")?,
                Requirement::Greater(key, bound) => write!(f, "{key}>{bound}")?,
                Requirement::Less(key, bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

/// Splits a selector into operators, punctuation and words; the empty word is the end.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn peek(&self) -> &'a str {
        let rest = self.rest.trim_start();
        for symbol in ["!=", "==", "=", "!", ",", "(", ")", ">", "<"] {
            if rest.starts_with(symbol) {
                return &rest[..symbol.len()];
            }
        }
        let end = rest
            .find(|c: char| c.is_whitespace() || matches!(c, '!' | '=' | ',' | '(' | ')' | '>' | '<'))
            .unwrap_or(rest.len());
        &rest[..end]
    }

    fn next(&mut self) -> &'a str {
        let word = self.peek();
        self.rest = &self.rest.trim_start()[word.len()..];
        word
    }
}

fn unexpected(found: &str, expected: &'static str) -> SelectorError {
    SelectorError::Unexpected { found: found.to_owned(), expected }
}

fn requirement(words: &mut Words<'_>) -> Result<Requirement, SelectorError> {
    if words.peek() == "!" {
        words.next();
        return Ok(Requirement::Absent(key(words.next())?));
    }
    let name = key(words.next())?;
    match words.peek() {
        "" | "," => Ok(Requirement::Exists(name)),
        "=" | "==" => {
            words.next();
            Ok(Requirement::Equals(name, single_value(words)?))
        }
        "!=" => {
            words.next();
            Ok(Requirement::Differs(name, single_value(words)?))
        }
        "in" => {
            words.next();
            Ok(Requirement::In(name, value_list(words)?))
        }
        "notin" => {
            words.next();
            Ok(Requirement::NotIn(name, value_list(words)?))
        }
        ">" | "<" => {
            let operator = words.next();
            let bound = words.next();
            let bound = bound.parse().map_err(|_| SelectorError::Value(bound.to_owned()))?;
            Ok(if operator == ">" {
                Requirement::Greater(name, bound)
            } else {
                Requirement::Less(name, bound)
            })
        }
        other => Err(unexpected(other, "in, notin, =, ==, !=, > or <")),
    }
}

fn single_value(words: &mut Words<'_>) -> Result<String, SelectorError> {
    match words.peek() {
        "" | "," => Ok(String::new()),
        _ => value(words.next()),
    }
}

fn value_list(words: &mut Words<'_>) -> Result<Vec<String>, SelectorError> {
    match words.next() {
        "(" => {}
        other => return Err(unexpected(other, "'('")),
    }
    let mut values = Vec::new();
    loop {
        match words.peek() {
            "," | ")" => values.push(String::new()),
            _ => values.push(value(words.next())?),
        }
        match words.next() {
            ")" => return Ok(values),
            "," => {}
            other => return Err(unexpected(other, "',' or ')'")),
        }
    }
}

fn key(text: &str) -> Result<String, SelectorError> {
    if is_qualified_name(text) { Ok(text.to_owned()) } else { Err(SelectorError::Key(text.to_owned())) }
}

fn value(text: &str) -> Result<String, SelectorError> {
    if is_label_value(text) { Ok(text.to_owned()) } else { Err(SelectorError::Value(text.to_owned())) }
}

/// `[prefix/]name`: the prefix is a DNS subdomain up to 253 characters, the name up to 63.
pub fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let prefix_is_valid = prefix.is_none_or(|prefix| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix.split('.').all(|part| {
                !part.is_empty()
                    && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
                    && !part.starts_with('-')
                    && !part.ends_with('-')
            })
    });
    prefix_is_valid && !name.is_empty() && is_label_value(name)
}

/// Up to 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit; may be empty.
pub fn is_label_value(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.is_empty()
        || (text.len() <= 63
            && text.chars().all(inner)
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[rstest::rstest]
    #[case("app=web", true)]
    #[case("app == web", true)]
    #[case("app!=web", false)]
    #[case("tier!=back", true)]
    #[case("app in (web, api)", true)]
    #[case("app notin (web)", false)]
    #[case("app,!tier", true)]
    #[case("!app", false)]
    #[case("", true)]
    #[case("size>3,size<9", true)]
    #[case("size>5", false)]
    #[case("app=", false)]
    fn selectors_match_as_in_kubectl(#[case] text: &str, #[case] expected: bool) {
        let have = labels(&[("app", "web"), ("size", "5")]);
        assert_eq!(Selector::parse(text).unwrap().matches(&have), expected, "{text}");
    }

    #[rstest::rstest]
    #[case("app=web,")]
    #[case("a b")]
    #[case("a in web")]
    #[case("=b")]
    #[case("a=b=c")]
    #[case("-a=b")]
    #[case("a in (b")]
    fn a_selector_that_does_not_parse_is_refused(#[case] text: &str) {
        assert!(Selector::parse(text).is_err(), "{text}");
    }

    #[test]
    fn a_budget_without_a_selector_matches_nothing_and_an_empty_one_everything() {
        let none = labels(&[]);
        assert!(!Selector::nothing().matches(&none));
        assert!(Selector::everything().matches(&none));
    }
}
