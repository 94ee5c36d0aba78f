//! Label selectors: the text of command lines and queries (`a=b,c in (d,e),!f`), the object with `matchLabels` and `matchExpressions`, and
//! what they match. The operators of node selectors are the same and two more.

mod parse;

use std::collections::BTreeMap;
use std::fmt;

use crate::validation;

/// Why a selector was not understood, in the words of kube-apiserver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("{0}")]
    Syntax(String),
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    /// A part of an object's selector that no selector may have.
    #[error("{0}")]
    Invalid(String),
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
}

/// How a requirement compares the value of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Equals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    /// Labels that are whole numbers, against one.
    GreaterThan,
    LessThan,
}

impl Operator {
    /// The operators of `matchExpressions` in a label selector.
    pub fn of_label_selector(word: &str) -> Option<Self> {
        Some(match word {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            _ => return None,
        })
    }

    /// Node selectors can compare numbers too.
    pub fn of_node_selector(word: &str) -> Option<Self> {
        match word {
            "Gt" => Some(Self::GreaterThan),
            "Lt" => Some(Self::LessThan),
            other => Self::of_label_selector(other),
        }
    }

    /// Whether a label with this value fits the wanted ones; `None` where there is no such label.
    pub fn holds(self, wanted: &[impl AsRef<str>], value: Option<&str>) -> bool {
        let among = |value: &str| wanted.iter().any(|one| one.as_ref() == value);
        let numbers = || Some((value?.parse::<i64>().ok()?, wanted.first()?.as_ref().parse::<i64>().ok()?));
        match self {
            Self::Equals | Self::In => value.is_some_and(among),
            Self::NotEquals | Self::NotIn => !value.is_some_and(among),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::GreaterThan => numbers().is_some_and(|(value, limit)| value > limit),
            Self::LessThan => numbers().is_some_and(|(value, limit)| value < limit),
        }
    }

    /// What is wrong with a requirement of this operator, apart from its key.
    fn complaints(self, key: &str, values: &[String]) -> Vec<String> {
        let number = values.len();
        let fault = match self {
            Self::In | Self::NotIn if number == 0 => "for 'in', 'notin' operators, values set can't be empty",
            Self::Equals | Self::NotEquals if number != 1 => {
                "exact-match compatibility requires one single value"
            }
            Self::Exists | Self::DoesNotExist if number != 0 => {
                "values set must be empty for exists and does not exist"
            }
            Self::GreaterThan | Self::LessThan if number != 1 => {
                "for 'Gt', 'Lt' operators, exactly one value is required"
            }
            _ => "",
        };
        let mut complaints = Vec::new();
        if !fault.is_empty() {
            complaints.push(format!("values: Invalid value: {values:?}: {fault}"));
        }
        if matches!(self, Self::GreaterThan | Self::LessThan) {
            let strange = values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err());
            complaints.extend(strange.map(|(at, value)| {
                format!("values[{at}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")
            }));
        }
        for (at, value) in values.iter().enumerate() {
            let faults = validation::label_value(value);
            if !faults.is_empty() {
                complaints
                    .push(format!("values[{at}][{key}]: Invalid value: {value:?}: {}", faults.join("; ")));
            }
        }
        complaints
    }
}

/// Several complaints are shown as a list, as Go's aggregate of errors is.
fn told(mut complaints: Vec<String>) -> Option<String> {
    match complaints.len() {
        0 => None,
        1 => complaints.pop(),
        _ => Some(format!("[{}]", complaints.join(", "))),
    }
}

/// The operator of one of the `matchExpressions` of a label selector, if that is well formed. With [`Operator::holds`] an object's selector is
/// matched in place, without a [`Selector`] made of it.
pub fn expression(key: &str, operator: &str, values: &[String]) -> Result<Operator, SelectorError> {
    let operator =
        Operator::of_label_selector(operator).ok_or_else(|| SelectorError::Operator(operator.to_owned()))?;
    check(key, operator, values)?;
    Ok(operator)
}

fn check(key: &str, operator: Operator, values: &[String]) -> Result<(), SelectorError> {
    let faults = validation::qualified_name(key);
    let mut complaints = operator.complaints(key, values);
    if !faults.is_empty() {
        complaints.insert(0, format!("key: Invalid value: {key:?}: {}", faults.join("; ")));
    }
    told(complaints).map_or(Ok(()), |told| Err(SelectorError::Invalid(told)))
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    pub fn new(key: String, operator: Operator, mut values: Vec<String>) -> Result<Self, SelectorError> {
        check(&key, operator, &values)?;
        values.sort_unstable();
        Ok(Self { key, operator, values })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let values = values.join(",");
        match operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// All requirements must hold; they are kept in the order of their keys. [`Selector::everything`] has none, [`Selector::nothing`] matches no
/// object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Selector {
    pub fn everything() -> Self {
        Self::of(Vec::new())
    }

    /// What a missing selector object means.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// Plain labels, all of which an object must have. They are taken as they are: what is no label matches nothing.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let one = |(key, value): (&str, &str)| Requirement {
            key: key.to_owned(),
            operator: Operator::Equals,
            values: vec![value.to_owned()],
        };
        Self::of(labels.into_iter().map(one).collect())
    }

    /// The object form: `matchLabels`, and `matchExpressions` as key, operator and values.
    pub fn from_parts<'a>(
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        expressions: impl IntoIterator<Item = (String, String, Vec<String>)>,
    ) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in labels {
            requirements.push(Requirement::new(key.to_owned(), Operator::Equals, vec![value.to_owned()])?);
        }
        for (key, operator, values) in expressions {
            let operator = Operator::of_label_selector(&operator).ok_or(SelectorError::Operator(operator))?;
            requirements.push(Requirement::new(key, operator, values)?);
        }
        Ok(Self::of(requirements))
    }

    /// The text form: `a=b,c!=d,e in (f,g),!h,i`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::requirements(text).map(Self::of)
    }

    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// Matching against any kind of label map.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let holds = |one: &Requirement| one.operator.holds(&one.values, label(&one.key));
        !self.nothing && self.requirements.iter().all(holds)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, requirement) in self.requirements.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn parts(
        labels: &[(&str, &str)],
        expressions: &[(&str, &str, &[&str])],
    ) -> Result<Selector, SelectorError> {
        let owned = |values: &[&str]| values.iter().map(ToString::to_string).collect();
        let one =
            |&(key, operator, values): &(&str, &str, &[&str])| (key.into(), operator.into(), owned(values));
        Selector::from_parts(labels.iter().copied(), expressions.iter().map(one))
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
    #[case("app notin (web)", false)]
    #[case("missing notin (db)", true)]
    #[case("app", true)]
    #[case("!app", false)]
    #[case("!missing", true)]
    #[case("n>3", true)]
    #[case("n>5", false)]
    #[case("n<3", false)]
    #[case("app>3", false)]
    #[case("n>3,n<9", true)]
    #[case("empty=", true)]
    #[case("app=", false)]
    #[case("empty in ()", true)]
    #[case("in", false)]
    #[case("app,!missing,n", true)]
    fn label_selectors_match_as_kubernetes_does(#[case] selector: &str, #[case] wanted: bool) {
        let labels = labels(&[("app", "web"), ("n", "5"), ("empty", "")]);
        assert_eq!(Selector::parse(selector).unwrap().matches(&labels), wanted);
    }

    #[test]
    fn a_missing_selector_matches_nothing_and_an_empty_one_everything() {
        let none = labels(&[]);
        assert!(!Selector::nothing().matches(&none));
        assert!(Selector::everything().matches(&none));
        assert!(parts(&[], &[]).unwrap().is_everything());
        assert!(!Selector::nothing().is_everything());
    }

    #[test]
    fn selector_objects_combine_labels_and_expressions_and_are_shown_in_the_order_of_keys() {
        let selector =
            parts(&[("app", "web")], &[("x", "DoesNotExist", &[]), ("tier", "NotIn", &["test", "spare"])])
                .unwrap();
        assert!(selector.matches(&labels(&[("app", "web")])));
        assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "test")])));
        assert!(!selector.matches(&labels(&[("app", "web"), ("x", "")])));
        assert_eq!(selector.to_string(), "app=web,tier notin (spare,test),!x");
    }

    #[rstest]
    #[case("a", "NotIn", &[], "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")]
    #[case("a", "Exists", &["b"], "values: Invalid value: [\"b\"]: values set must be empty for exists and does not exist")]
    #[case("a", "Near", &[], "\"Near\" is not a valid label selector operator")]
    #[case("a", "Gt", &["1"], "\"Gt\" is not a valid label selector operator")]
    fn selector_objects_that_kubernetes_refuses_are_refused(
        #[case] key: &str,
        #[case] operator: &str,
        #[case] values: &[&str],
        #[case] wanted: &str,
    ) {
        let error = parts(&[], &[(key, operator, values)]).unwrap_err();
        assert_eq!(error.to_string(), wanted);
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        assert_eq!(expression(key, operator, &values), Err(error));
    }

    #[test]
    fn keys_and_values_that_no_label_can_have_are_refused() {
        for (key, value) in [("a/b/c", "d"), ("-a", "b"), ("a", "b c"), ("", "b")] {
            assert!(parts(&[(key, value)], &[]).is_err(), "{key:?} {value:?}");
            assert!(parts(&[], &[(key, "NotIn", &[value])]).is_err(), "{key:?} {value:?}");
        }
    }

    #[test]
    fn node_selectors_compare_numbers_and_label_selectors_do_not() {
        let holds = |word, value| {
            Operator::of_node_selector(word).is_some_and(|operator| operator.holds(&["4"], Some(value)))
        };
        assert!(holds("Gt", "5") && !holds("Gt", "4") && !holds("Gt", "many"));
        assert!(holds("Lt", "-5") && !holds("Lt", "4"));
        assert!(holds("In", "4") && !holds("NotIn", "4"));
        assert!(!holds("Near", "4"));
        assert_eq!(Operator::of_label_selector("Gt"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = Selector::parse(&text);
        }

        #[test]
        fn what_is_printed_parses_to_the_same_selector(
            keys in proptest::collection::vec("[a-z]{1,5}", 0..4), value in "[a-z0-9]{0,5}"
        ) {
            let text = keys.iter().map(|k| format!("{k}!={value}")).collect::<Vec<_>>().join(",");
            let selector = Selector::parse(&text).unwrap();
            prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}
