//! Label and field selectors: the text forms of query parameters and the `LabelSelector` object.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use crate::kinds::names;

/// Why a selector was not understood; the text is what clients see after `unable to parse …`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("{0}")]
    Syntax(String),
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
}

/// How a requirement compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    Equals(String),
    NotEquals(String),
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub test: Test,
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::Equals(wanted) => value == Some(wanted),
            Test::NotEquals(refused) => value != Some(refused),
            Test::In(set) => value.is_some_and(|v| set.contains(v)),
            Test::NotIn(set) => !value.is_some_and(|v| set.contains(v)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::GreaterThan(limit) => number().is_some_and(|n| n > *limit),
            Test::LessThan(limit) => number().is_some_and(|n| n < *limit),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let joined = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(",");
        match &self.test {
            Test::Equals(v) => write!(f, "{key}={v}"),
            Test::NotEquals(v) => write!(f, "{key}!={v}"),
            Test::In(set) => write!(f, "{key} in ({})", joined(set)),
            Test::NotIn(set) => write!(f, "{key} notin ({})", joined(set)),
            Test::Exists => write!(f, "{key}"),
            Test::DoesNotExist => write!(f, "!{key}"),
            Test::GreaterThan(n) => write!(f, "{key}>{n}"),
            Test::LessThan(n) => write!(f, "{key}<{n}"),
        }
    }
}

/// All requirements must hold. Without requirements everything matches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// The text form: `app=web,tier in (a,b),!canary`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser::new(text);
        let mut requirements = parser.selector()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// A `LabelSelector` object. Absent selects nothing, empty selects everything.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, SelectorError> {
        let Some(selector) = selector.filter(|s| !s.is_null()) else { return Ok(Self::nothing()) };
        let mut requirements = Vec::new();
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            requirements.push(Requirement {
                key: key.clone(),
                test: Test::Equals(value.as_str().unwrap_or("").to_owned()),
            });
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or("");
            let values = || {
                let values = expression.get("values").and_then(Value::as_array);
                values.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let condition = match text("operator") {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::DoesNotExist,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            requirements.push(Requirement { key: text("key").to_owned(), test: condition });
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// A plain map of labels (`spec.selector` of services and replication controllers).
    pub fn from_map(labels: Option<&Map<String, Value>>) -> Self {
        let requirements = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                test: Test::Equals(value.as_str().unwrap_or("").to_owned()),
            })
            .collect();
        Self { requirements, nothing: false }
    }

    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.matches_with(|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str))
    }

    /// Matching against any kind of label map.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(label(&r.key)))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    Error(String),
    End,
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Self::Word(s) | Self::Error(s) => s,
            Self::Symbol(s) => s,
            Self::End => "",
        }
    }
}

const SYMBOLS: [&str; 9] = ["!=", "==", "=", "!", "(", ")", ",", "<", ">"];

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn tokens(mut text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start_matches(is_space);
        let Some(first) = text.chars().next() else {
            found.push(Token::End);
            return found;
        };
        if is_symbol(first) {
            if let Some(symbol) = SYMBOLS.iter().find(|s| text.starts_with(**s)) {
                found.push(Token::Symbol(symbol));
                text = &text[symbol.len()..];
            } else {
                found.push(Token::Error(format!("error expected: keyword found '{first}'")));
                text = &text[first.len_utf8()..];
            }
        } else {
            let end = text.find(|c| is_symbol(c) || is_space(c)).unwrap_or(text.len());
            found.push(Token::Word(text[..end].to_owned()));
            text = &text[end..];
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn new(text: &str) -> Self {
        Self { tokens: tokens(text), at: 0 }
    }

    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    requirements.push(self.requirement().map_err(SelectorError::Requirement)?);
                    match self.next() {
                        Token::End => return Ok(requirements),
                        Token::Symbol(",") => {
                            let after = self.peek();
                            if !matches!(after, Token::Word(_) | Token::Symbol("!")) {
                                return Err(SelectorError::Syntax(format!(
                                    "found '{}', expected: identifier after ','",
                                    after.literal()
                                )));
                            }
                        }
                        other => {
                            return Err(SelectorError::Syntax(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.literal()
                            )));
                        }
                    }
                }
                Token::End => return Ok(requirements),
                other => {
                    return Err(SelectorError::Syntax(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.literal()
                    )));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.literal()));
        };
        let complaints = names::qualified_name(&key);
        if !complaints.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", complaints.join("; ")));
        }
        let unary = matches!(self.peek(), Token::End | Token::Symbol(","));
        if negated && unary {
            return Ok(Requirement { key, test: Test::DoesNotExist });
        }
        if unary {
            return Ok(Requirement { key, test: Test::Exists });
        }
        if negated {
            // `!key` must be followed by the end or a comma; anything else is reported by the caller.
            return Ok(Requirement { key, test: Test::DoesNotExist });
        }
        let operator = self.next();
        let test = match operator.literal() {
            "in" => Test::In(self.values(&key)?),
            "notin" => Test::NotIn(self.values(&key)?),
            "=" | "==" => Test::Equals(self.value(&key)?),
            "!=" => Test::NotEquals(self.value(&key)?),
            ">" => Test::GreaterThan(self.number(&key)?),
            "<" => Test::LessThan(self.number(&key)?),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        Ok(Requirement { key, test })
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => check_value(key, 0, value),
            other => Err(format!("found '{}', expected: identifier", other.literal())),
        }
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let value = self.value(key)?;
        value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.literal()));
        }
        let mut set = BTreeSet::new();
        match self.peek() {
            Token::Symbol(")") => {
                self.next();
                set.insert(String::new());
                return Ok(set);
            }
            Token::Word(_) | Token::Symbol(",") => {}
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.literal())),
        }
        loop {
            match self.next() {
                Token::Word(value) => {
                    set.insert(value);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => {
                            return Err(format!("found '{}', expected: ',' or ')'", other.literal()));
                        }
                    }
                }
                Token::Symbol(",") => {
                    if set.is_empty() {
                        set.insert(String::new());
                    }
                    match self.peek() {
                        Token::Symbol(")") => {
                            set.insert(String::new());
                            break;
                        }
                        Token::Symbol(",") => {
                            set.insert(String::new());
                        }
                        _ => {}
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.literal())),
            }
        }
        self.next();
        let all = std::mem::take(&mut set);
        all.into_iter().enumerate().map(|(i, value)| check_value(key, i, value)).collect()
    }
}

fn check_value(key: &str, index: usize, value: String) -> Result<String, String> {
    let complaints = names::label_value(&value);
    if complaints.is_empty() {
        return Ok(value);
    }
    Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {}", complaints.join("; ")))
}

/// A field selector: `spec.nodeName=node-1,status.phase!=Failed`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    label: String,
    value: String,
    negated: bool,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parts = split_unescaped(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let Some((label, operator, value)) = split_term(part) else {
                return Err(SelectorError::Syntax(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            terms.push(FieldTerm {
                label: label.to_owned(),
                value: unescape(value)?,
                negated: operator == "!=",
            });
        }
        Ok(Self { terms })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|t| t.label.as_str())
    }

    /// The value a label must equal, if the selector demands one: lets a list by name be a get.
    pub fn required(&self, label: &str) -> Option<&str> {
        self.terms.iter().find(|t| !t.negated && t.label == label).map(|t| t.value.as_str())
    }

    /// `field` gives the value of a label; a label without value matches no equality.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.terms.iter().all(|term| {
            let equal = field(&term.label).is_some_and(|v| v == term.value.as_str());
            equal != term.negated
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}{}{}", term.label, if term.negated { "!=" } else { "=" }, escape(&term.value))?;
        }
        Ok(())
    }
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn split_term(term: &str) -> Option<(&str, &str, &str)> {
    let (at, operator) = term.char_indices().find_map(|(i, _)| {
        ["!=", "==", "="].into_iter().find(|op| term[i..].starts_with(op)).map(|op| (i, op))
    })?;
    Some((&term[..at], operator, &term[at + operator.len()..]))
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(value.to_owned());
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(next) => {
                    return Err(SelectorError::Syntax(format!(
                        "invalid field selector: invalid escape sequence: \\{next}"
                    )));
                }
                None => {
                    return Err(SelectorError::Syntax(
                        "invalid field selector: invalid escape sequence: \\".to_owned(),
                    ));
                }
            },
            ',' | '=' => {
                return Err(SelectorError::Syntax(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(labels.as_object())
    }

    #[rstest]
    #[case("", true)]
    #[case("app=web", true)]
    #[case("app==web", true)]
    #[case("app = web", true)]
    #[case("app!=web", false)]
    #[case("app!=db", true)]
    #[case("other!=db", true)]
    #[case("app in (web, db)", true)]
    #[case("app in (db)", false)]
    #[case("app notin (db)", true)]
    #[case("missing notin (db)", true)]
    #[case("app", true)]
    #[case("!app", false)]
    #[case("!missing", true)]
    #[case("n>3", true)]
    #[case("n<3", false)]
    #[case("empty=", true)]
    #[case("empty in ()", true)]
    #[case("in", false)]
    #[case("app,!missing,n", true)]
    fn label_selectors_match_as_kubernetes_does(#[case] selector: &str, #[case] wanted: bool) {
        let labels = json!({"app": "web", "n": "5", "empty": ""});
        assert_eq!(matches(selector, &labels), wanted);
    }

    #[rstest]
    #[case("a=b,", "found '', expected: identifier after ','")]
    #[case(",", "found ',', expected: !, identifier, or 'end of string'")]
    #[case("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt")]
    #[case("a in b", "unable to parse requirement: found 'b' expected: '('")]
    #[case("a in (b", "unable to parse requirement: found '', expected: ',' or ')'")]
    #[case("a=b c", "found 'c', expected: ',' or 'end of string'")]
    #[case("a=(", "unable to parse requirement: found '(', expected: identifier")]
    #[case("!", "unable to parse requirement: found '', expected: identifier")]
    fn syntax_errors_say_what_was_expected(#[case] selector: &str, #[case] wanted: &str) {
        assert_eq!(LabelSelector::parse(selector).unwrap_err().to_string(), wanted);
    }

    #[test]
    fn a_bad_key_is_refused_with_the_reason() {
        let error = LabelSelector::parse("a/b/c=d").unwrap_err().to_string();
        assert!(error.starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must"
        ));
    }

    #[test]
    fn an_absent_selector_object_selects_nothing_and_an_empty_one_everything() {
        assert!(!LabelSelector::from_object(None).unwrap().matches(None));
        assert!(LabelSelector::from_object(Some(&json!({}))).unwrap().matches(None));
    }

    #[test]
    fn selector_objects_combine_labels_and_expressions() {
        let selector = LabelSelector::from_object(Some(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["test"]},
                {"key": "x", "operator": "DoesNotExist"},
            ],
        })))
        .unwrap();
        assert!(selector.matches(json!({"app": "web"}).as_object()));
        assert!(!selector.matches(json!({"app": "web", "tier": "test"}).as_object()));
        assert!(!selector.matches(json!({"app": "web", "x": ""}).as_object()));
        assert_eq!(selector.to_string(), "app=web,tier notin (test),!x");
    }

    #[test]
    fn field_selectors_compare_exactly_and_understand_escapes() {
        let selector = FieldSelector::parse("spec.nodeName=a\\,b,status.phase!=Failed").unwrap();
        let field = |phase: &'static str| {
            move |label: &str| Some(Cow::Borrowed(if label == "spec.nodeName" { "a,b" } else { phase }))
        };
        assert!(selector.matches(field("Running")));
        assert!(!selector.matches(field("Failed")));
        assert_eq!(selector.required("spec.nodeName"), Some("a,b"));
        assert_eq!(selector.to_string(), "spec.nodeName=a\\,b,status.phase!=Failed");
        assert_eq!(
            FieldSelector::parse("metadata.name").unwrap_err().to_string(),
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,40}") {
            let _ = LabelSelector::parse(&text);
            let _ = FieldSelector::parse(&text);
        }

        #[test]
        fn what_is_printed_parses_to_the_same_selector(
            keys in proptest::collection::vec("[a-z]{1,5}", 0..4), value in "[a-z0-9]{0,5}"
        ) {
            let text = keys.iter().map(|k| format!("{k}!={value}")).collect::<Vec<_>>().join(",");
            let selector = LabelSelector::parse(&text).unwrap();
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}
