//! Values of expressions.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::time;

#[derive(Debug, Clone)]
pub enum Val {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Timestamp(jiff::Timestamp),
    /// In nanoseconds.
    Duration(i64),
    List(Arc<List>),
    /// In the order of the source or of the document.
    Map(Arc<Vec<(Val, Val)>>),
    Object(Arc<Object>),
    Optional(Option<Arc<Val>>),
    /// Data that does not fit its schema; a mistake only for whoever looks at it.
    Broken(Arc<str>),
}

#[derive(Debug)]
pub struct List {
    pub items: Vec<Val>,
    pub flavour: Flavour,
}

/// How lists are compared and added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flavour {
    /// Written in the expression.
    Literal,
    Atomic,
    /// The order does not matter.
    Set,
    /// Elements are told apart by these (escaped) fields; the order does not matter.
    Keyed(Vec<String>),
}

#[derive(Debug)]
pub struct Object {
    /// By escaped name.
    pub fields: BTreeMap<String, Val>,
    /// What the schema does not describe: only seen when objects are compared.
    pub rest: BTreeMap<String, Json>,
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Error(String),
    #[error("operation cancelled: actual cost limit exceeded")]
    TooExpensive,
}

impl Failure {
    pub fn overload() -> Self {
        Self::Error("no such overload".into())
    }
}

pub type Result<T> = std::result::Result<T, Failure>;

pub fn fail<T>(why: impl Into<String>) -> Result<T> {
    Err(Failure::Error(why.into()))
}

impl Val {
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(List { items, flavour: Flavour::Literal }))
    }

    /// Data without a schema: what it looks like is what it is.
    pub fn free(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(b) => Self::Bool(*b),
            Json::Number(n) => {
                n.as_i64().map_or_else(|| Self::Double(n.as_f64().unwrap_or(f64::NAN)), Self::Int)
            }
            Json::String(text) => Self::text(text.as_str()),
            Json::Array(items) => Self::List(Arc::new(List {
                items: items.iter().map(Self::free).collect(),
                flavour: Flavour::Atomic,
            })),
            Json::Object(fields) => {
                let entries = fields.iter().map(|(k, v)| (Self::text(k.as_str()), Self::free(v)));
                Self::Map(Arc::new(entries.collect()))
            }
        }
    }

    /// What real servers call its type in some failures.
    pub const fn go_name(&self) -> &'static str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::Text(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::Timestamp(_) => "types.Timestamp",
            Self::Duration(_) => "types.Duration",
            Self::Optional(_) => "*types.Optional",
            Self::List(_) | Self::Map(_) | Self::Object(_) | Self::Broken(_) => "ref.Val",
        }
    }

    /// Itself, unless it is broken.
    pub fn whole(self) -> Result<Self> {
        match self {
            Self::Broken(why) => fail(&*why),
            whole => Ok(whole),
        }
    }

    /// How much work it is to look at all of it.
    pub fn weight(&self) -> u64 {
        match self {
            Self::Text(text) => 1 + text.len() as u64 / 10,
            Self::Bytes(bytes) => 1 + bytes.len() as u64 / 10,
            Self::List(list) => 1 + list.items.iter().map(Self::weight).sum::<u64>(),
            Self::Map(entries) => 1 + entries.iter().map(|(k, v)| k.weight() + v.weight()).sum::<u64>(),
            Self::Object(object) => {
                1 + object.rest.len() as u64 + object.fields.values().map(Self::weight).sum::<u64>()
            }
            Self::Optional(Some(inner)) => 1 + inner.weight(),
            _ => 1,
        }
    }
}

/// Whether two values are equal. Values of different types are not; numbers are compared as numbers.
pub fn equal(a: &Val, b: &Val) -> Result<bool> {
    Ok(match (a, b) {
        (Val::Broken(why), _) | (_, Val::Broken(why)) => return fail(&**why),
        (Val::Null, Val::Null) => true,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::Text(a), Val::Text(b)) => a == b,
        (Val::Bytes(a), Val::Bytes(b)) => a == b,
        (Val::Timestamp(a), Val::Timestamp(b)) => a == b,
        (Val::Duration(a), Val::Duration(b)) => a == b,
        (Val::Optional(a), Val::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b)?,
            (a, b) => a.is_none() == b.is_none(),
        },
        (Val::List(a), Val::List(b)) => lists_equal(a, b)?,
        (Val::Map(a), Val::Map(b)) => maps_equal(a, b)?,
        (Val::Object(a), Val::Object(b)) => objects_equal(a, b)?,
        (a, b) => matches!(numeric(a, b), Numeric::Ordered(Ordering::Equal)),
    })
}

fn lists_equal(a: &List, b: &List) -> Result<bool> {
    if a.items.len() != b.items.len() {
        return Ok(false);
    }
    let same = |a: &Val, b: &Val, keys: Option<&[String]>| match keys {
        None => equal(a, b),
        Some(keys) => Ok(keys_equal(keys, a, b)? && equal(a, b)?),
    };
    // The left side decides how the two are compared.
    let keys = match &a.flavour {
        Flavour::Literal | Flavour::Atomic => {
            for (a, b) in a.items.iter().zip(&b.items) {
                if !equal(a, b)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Flavour::Set => None,
        Flavour::Keyed(keys) => Some(keys.as_slice()),
    };
    for (these, those) in [(&a.items, &b.items), (&b.items, &a.items)] {
        for this in these {
            let mut found = false;
            for that in those {
                found = found || same(this, that, keys)?;
            }
            if !found {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether two elements of a keyed list stand for the same thing.
pub fn keys_equal(keys: &[String], a: &Val, b: &Val) -> Result<bool> {
    let (Val::Object(a), Val::Object(b)) = (a, b) else { return Err(Failure::overload()) };
    for key in keys {
        match (a.fields.get(key), b.fields.get(key)) {
            (Some(a), Some(b)) if equal(a, b)? => {}
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn maps_equal(a: &[(Val, Val)], b: &[(Val, Val)]) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, value) in a {
        match entry(b, key)? {
            Some(other) if equal(value, other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn objects_equal(a: &Object, b: &Object) -> Result<bool> {
    if a.fields.len() + a.rest.len() != b.fields.len() + b.rest.len() {
        return Ok(false);
    }
    for (name, value) in &a.fields {
        match b.fields.get(name) {
            Some(other) if equal(value, other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(a.rest.iter().all(|(name, value)| b.rest.get(name).is_none_or(|other| value == other)))
}

/// The value of a key in a map.
pub fn entry<'a>(entries: &'a [(Val, Val)], key: &Val) -> Result<Option<&'a Val>> {
    for (known, value) in entries {
        if equal(known, key)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// How two values are as numbers.
enum Numeric {
    Ordered(Ordering),
    /// One of them is no number that could be ordered (`NaN`).
    Unordered,
    /// They are not both numbers.
    Other,
}

fn numeric(a: &Val, b: &Val) -> Numeric {
    let order = match (a, b) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::Uint(a), Val::Uint(b)) => Some(a.cmp(b)),
        (Val::Int(a), Val::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Uint(a), Val::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Double(a), b) => match whole(b) {
            Some(b) => with_whole(*a, b),
            None => return Numeric::Other,
        },
        (a, Val::Double(b)) => match whole(a) {
            Some(a) => with_whole(*b, a).map(Ordering::reverse),
            None => return Numeric::Other,
        },
        _ => return Numeric::Other,
    };
    order.map_or(Numeric::Unordered, Numeric::Ordered)
}

fn whole(value: &Val) -> Option<i128> {
    match value {
        Val::Int(n) => Some((*n).into()),
        Val::Uint(n) => Some((*n).into()),
        _ => None,
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the value was bounded before")]
fn with_whole(a: f64, b: i128) -> Option<Ordering> {
    if a.is_nan() {
        return None;
    }
    // Beyond this no number of the other types can be.
    if a.abs() >= 1.0e20 {
        return Some(if a > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    let floor = a.floor();
    Some((floor as i128).cmp(&b).then(if a > floor { Ordering::Greater } else { Ordering::Equal }))
}

/// Which of two values comes first.
pub fn compare(a: &Val, b: &Val) -> Result<Ordering> {
    Ok(match (a, b) {
        (Val::Broken(why), _) | (_, Val::Broken(why)) => return fail(&**why),
        (Val::Bool(a), Val::Bool(b)) => a.cmp(b),
        (Val::Text(a), Val::Text(b)) => a.cmp(b),
        (Val::Bytes(a), Val::Bytes(b)) => a.cmp(b),
        (Val::Timestamp(a), Val::Timestamp(b)) => a.cmp(b),
        (Val::Duration(a), Val::Duration(b)) => a.cmp(b),
        (a, b) => match numeric(a, b) {
            Numeric::Ordered(order) => order,
            Numeric::Unordered => return fail("NaN values cannot be ordered"),
            Numeric::Other => return Err(Failure::overload()),
        },
    })
}

/// As `string()` shows it, if it does.
pub fn to_text(value: &Val) -> Result<Arc<str>> {
    Ok(match value {
        Val::Text(text) => text.clone(),
        Val::Bool(b) => b.to_string().into(),
        Val::Int(n) => n.to_string().into(),
        Val::Uint(n) => n.to_string().into(),
        Val::Double(d) => double_text(*d).into(),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => return fail("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Val::Timestamp(at) => at.to_string().into(),
        Val::Duration(nanos) => time::duration_text(*nanos).into(),
        _ => return Err(Failure::overload()),
    })
}

/// The shortest digits, with an exponent for the very large and the very small.
fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
