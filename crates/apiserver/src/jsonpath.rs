//! The JSON paths of printer columns: `.status.conditions[?(@.type=="Ready")].status`.
//!
//! This is kubectl's dialect as far as column definitions use it: fields, quoted fields, indexes, slices,
//! wildcards, recursive descent and filters with comparison or existence.

use serde_json::Value;

/// Why a path was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    #[error("unrecognized character in path: {0:?}")]
    Unexpected(char),
    #[error("invalid array index {0}")]
    Index(String),
    #[error("invalid filter {0}")]
    Filter(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Every,
    /// All values below, and the value itself.
    Descend,
    Filter(Box<Filter>),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    test: Option<(Comparison, Operand)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Parses `.a.b`, with or without `$` in front and `{}` around.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut rest = text.trim_start_matches(['$', '@']);
        let mut steps = Vec::new();
        while let Some(first) = rest.chars().next() {
            match first {
                '.' if rest.starts_with("..") => {
                    steps.push(Step::Descend);
                    rest = &rest[2..];
                    if !rest.starts_with('[') {
                        rest = field(rest, &mut steps)?;
                    }
                }
                '.' => {
                    rest = &rest[1..];
                    if !rest.starts_with('[') {
                        rest = field(rest, &mut steps)?;
                    }
                }
                '[' => rest = bracket(rest, &mut steps)?,
                other if steps.is_empty() && (other.is_alphanumeric() || other == '_') => {
                    rest = field(rest, &mut steps)?;
                }
                other => return Err(JsonPathError::Unexpected(other)),
            }
        }
        Ok(Self { steps })
    }

    /// All values the path leads to.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut current = vec![value];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in current {
                step.apply(value, &mut next);
            }
            current = next;
        }
        current
    }

    /// The first value the path leads to.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.find(value).into_iter().next()
    }
}

/// A field name after a dot; `\.` stands for a dot in the name.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, JsonPathError> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => {
                if let Some((_, escaped)) = chars.next() {
                    name.push(escaped);
                }
            }
            '.' | '[' => {
                end = i;
                break;
            }
            c if c.is_whitespace() || matches!(c, '(' | ')' | '{' | '}' | '"' | '\'') => {
                return Err(JsonPathError::Unexpected(c));
            }
            c => name.push(c),
        }
    }
    match name.as_str() {
        "" => {}
        "*" => steps.push(Step::Every),
        _ => steps.push(Step::Field(name)),
    }
    Ok(&text[end..])
}

fn bracket<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, JsonPathError> {
    if let Some(inner) = text.strip_prefix("[?(") {
        let end = filter_end(inner).ok_or(JsonPathError::Unterminated("filter"))?;
        steps.push(Step::Filter(Box::new(filter(&inner[..end])?)));
        return Ok(&inner[end + 2..]);
    }
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_prefix(quote)) {
            let end = inner.find(&format!("{quote}]")).ok_or(JsonPathError::Unterminated("quoted name"))?;
            steps.push(Step::Field(inner[..end].to_owned()));
            return Ok(&inner[end + 2..]);
        }
    }
    let end = text.find(']').ok_or(JsonPathError::Unterminated("array"))?;
    let inner = text[1..end].trim();
    let number = |text: &str| -> Result<Option<i64>, JsonPathError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| JsonPathError::Index(inner.to_owned()))
    };
    steps.push(match inner.split_once(':') {
        _ if inner == "*" => Step::Every,
        Some((from, to)) => Step::Slice(number(from)?, number(to)?),
        None => Step::Index(number(inner)?.ok_or_else(|| JsonPathError::Index(inner.to_owned()))?),
    });
    Ok(&text[end + 1..])
}

/// Where `)]` closes the filter, outside of quotes.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ')') if text[i..].starts_with(")]") => return Some(i),
            _ => {}
        }
    }
    None
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

fn filter(text: &str) -> Result<Filter, JsonPathError> {
    for (symbol, comparison) in COMPARISONS {
        if let Some((left, right)) = text.split_once(symbol) {
            return Ok(Filter { left: operand(left)?, test: Some((comparison, operand(right)?)) });
        }
    }
    Ok(Filter { left: operand(text)?, test: None })
}

fn operand(text: &str) -> Result<Operand, JsonPathError> {
    let text = text.trim();
    if text.starts_with('@') || text.starts_with('$') {
        return JsonPath::parse(text).map(Operand::Path);
    }
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote)) {
            return Ok(Operand::Literal(Value::String(inner.to_owned())));
        }
    }
    serde_json::from_str(text).map(Operand::Literal).map_err(|_| JsonPathError::Filter(text.to_owned()))
}

impl Step {
    fn apply<'a>(&self, value: &'a Value, out: &mut Vec<&'a Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => out.extend(map.get(name)),
            (Self::Index(i), Value::Array(list)) => {
                let at = if *i < 0 { i + list.len() as i64 } else { *i };
                out.extend(usize::try_from(at).ok().and_then(|at| list.get(at)));
            }
            (Self::Slice(from, to), Value::Array(list)) => {
                let place = |at: i64| {
                    let at = if at < 0 { at + list.len() as i64 } else { at };
                    usize::try_from(at).unwrap_or(0).min(list.len())
                };
                let (from, to) = (from.map_or(0, place), to.map_or(list.len(), place));
                out.extend(list.iter().take(to).skip(from));
            }
            (Self::Every, Value::Array(list)) => out.extend(list),
            (Self::Every, Value::Object(map)) => out.extend(map.values()),
            (Self::Descend, value) => descend(value, out),
            (Self::Filter(filter), Value::Array(list)) => {
                out.extend(list.iter().filter(|v| filter.holds(v)));
            }
            _ => {}
        }
    }
}

fn descend<'a>(value: &'a Value, out: &mut Vec<&'a Value>) {
    out.push(value);
    match value {
        Value::Array(list) => list.iter().for_each(|v| descend(v, out)),
        Value::Object(map) => map.values().for_each(|v| descend(v, out)),
        _ => {}
    }
}

impl Filter {
    fn holds(&self, value: &Value) -> bool {
        let left = self.left.values(value);
        let Some((comparison, right)) = &self.test else { return !left.is_empty() };
        let right = right.values(value);
        match (left.first(), right.first()) {
            (Some(a), Some(b)) => comparison.holds(a, b),
            _ => false,
        }
    }
}

impl Operand {
    fn values<'a>(&'a self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Path(path) => path.find(value),
            Self::Literal(literal) => vec![literal],
        }
    }
}

impl Comparison {
    fn holds(self, a: &Value, b: &Value) -> bool {
        let order = match (a, b) {
            (Value::Number(x), Value::Number(y)) => {
                x.as_f64().zip(y.as_f64()).and_then(|(x, y)| x.partial_cmp(&y))
            }
            (Value::String(x), Value::String(y)) => Some(x.cmp(y)),
            (Value::Bool(x), Value::Bool(y)) => Some(x.cmp(y)),
            _ => None,
        };
        let Some(order) = order else { return self == Self::NotEqual };
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(".status.phase", json!(["Running"]))]
    #[case("$.status.phase", json!(["Running"]))]
    #[case("{.status.phase}", json!(["Running"]))]
    #[case(".status.conditions[?(@.type==\"Ready\")].status", json!(["True"]))]
    #[case(".status.conditions[?(@.type=='Nope')].status", json!([]))]
    #[case(".status.conditions[?(@.n > 1)].type", json!(["Synced"]))]
    #[case(".status.conditions[?(@.n)].type", json!(["Ready", "Synced"]))]
    #[case(".status.conditions[0].type", json!(["Ready"]))]
    #[case(".status.conditions[-1].type", json!(["Synced"]))]
    #[case(".status.conditions[*].type", json!(["Ready", "Synced"]))]
    #[case(".status.conditions[0:1].type", json!(["Ready"]))]
    #[case(".metadata.labels.app\\.kubernetes\\.io/name", json!(["web"]))]
    #[case(".metadata.labels['app.kubernetes.io/name']", json!(["web"]))]
    #[case("..n", json!([1, 2]))]
    #[case(".missing.field", json!([]))]
    fn paths_lead_where_kubectl_says(#[case] path: &str, #[case] wanted: Value) {
        let object = json!({
            "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "n": 1},
                {"type": "Synced", "status": "False", "n": 2},
            ]},
        });
        let found = JsonPath::parse(path).unwrap();
        assert_eq!(json!(found.find(&object)), wanted);
    }

    #[rstest]
    #[case(".a[")]
    #[case(".a[x]")]
    #[case(".a[?(@.b==\"c\"")]
    #[case(".a b")]
    fn what_is_no_path_is_refused(#[case] path: &str) {
        assert!(JsonPath::parse(path).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,30}") {
            if let Ok(path) = JsonPath::parse(&text) {
                let _ = path.find(&json!({"a": [{"b": 1}, 2, "x"]}));
            }
        }
    }
}
