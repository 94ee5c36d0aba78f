//! The functions and operators themselves, chosen by the values they are called with.

use std::cmp::Ordering;
use std::sync::Arc;

use regex::Regex;

use super::eval::index;
use super::text;
use super::time;
use super::value::{Failure, Flavour, List, Result, Val, compare, entry, equal, fail, keys_equal, to_text};

/// What a call costs: one, and more for what looks at whole texts or lists.
pub fn cost(name: &str, args: &[Val]) -> u64 {
    let length = |at: usize| match args.get(at) {
        Some(Val::Text(text)) => text.len() as u64,
        Some(Val::Bytes(bytes)) => bytes.len() as u64,
        Some(Val::List(list)) => list.items.len() as u64,
        Some(Val::Map(entries)) => entries.len() as u64,
        _ => 1,
    };
    let heavy = |at: usize| args.get(at).map_or(1, Val::weight);
    match name {
        "_==_" | "_!=_" => match (&args.first(), &args.get(1)) {
            // Lists without order are compared each with each.
            (Some(Val::List(a)), Some(Val::List(b)))
                if !matches!(a.flavour, Flavour::Literal | Flavour::Atomic) =>
            {
                heavy(0).saturating_mul(b.items.len() as u64).saturating_add(1)
            }
            _ => heavy(0).min(heavy(1)),
        },
        "@in" => match args.get(1) {
            Some(Val::List(list)) => heavy(0).saturating_mul(list.items.len() as u64).saturating_add(1),
            _ => 1 + length(1) / 10,
        },
        "sets.contains" | "sets.equivalent" | "sets.intersects" => {
            heavy(0).saturating_mul(heavy(1)).saturating_mul(2)
        }
        "matches" | "find" | "findAll" => 1 + (length(0) / 10 + 1).saturating_mul(length(1) / 4 + 1),
        "contains" | "indexOf" | "lastIndexOf" | "replace" | "split" | "join" | "isSorted" | "sum"
        | "min" | "max" | "_+_" => 1 + heavy(0) + args.get(1).map_or(0, Val::weight),
        "size" | "_[_]" | "_[?_]" => 1 + length(0) / 100,
        _ => 1 + length(0) / 10,
    }
}

pub fn call(name: &str, args: &[Val]) -> Result<Val> {
    let ordered = |a: &Val, b: &Val, wanted: &[Ordering]| -> Result<Val> {
        match compare(a, b) {
            Ok(order) => Ok(Val::Bool(wanted.contains(&order))),
            Err(failure) => Err(failure),
        }
    };
    match (name, args) {
        ("_==_", [a, b]) => Ok(Val::Bool(equal(a, b)?)),
        ("_!=_", [a, b]) => Ok(Val::Bool(!equal(a, b)?)),
        ("_<_", [a, b]) => ordered(a, b, &[Ordering::Less]),
        ("_<=_", [a, b]) => ordered(a, b, &[Ordering::Less, Ordering::Equal]),
        ("_>_", [a, b]) => ordered(a, b, &[Ordering::Greater]),
        ("_>=_", [a, b]) => ordered(a, b, &[Ordering::Greater, Ordering::Equal]),
        ("!_", [Val::Bool(b)]) => Ok(Val::Bool(!b)),
        ("-_", [Val::Int(n)]) => n.checked_neg().map(Val::Int).ok_or_else(overflow),
        ("-_", [Val::Double(d)]) => Ok(Val::Double(-d)),
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [a, b]) => arithmetic(name, a, b),
        ("_[_]" | "_[?_]", [container, key]) => at(container, key, name == "_[?_]"),
        ("@in", [item, Val::List(list)]) => Ok(Val::Bool(position(&list.items, item)?.is_some())),
        ("@in", [key, Val::Map(entries)]) => Ok(Val::Bool(entry(entries, key)?.is_some())),
        ("size", [value]) => size(value),
        (
            "int" | "uint" | "double" | "string" | "bool" | "bytes" | "timestamp" | "duration" | "dyn",
            [value],
        ) => convert(name, value),
        ("isSorted" | "sum" | "min" | "max", [Val::List(list)]) => over_list(name, &list.items),
        ("indexOf", [Val::List(list), item]) => {
            Ok(Val::Int(position(&list.items, item)?.map_or(-1, |at| at as i64)))
        }
        ("lastIndexOf", [Val::List(list), item]) => {
            let mut found = -1;
            for (at, other) in list.items.iter().enumerate() {
                if equal(other, item)? {
                    found = at as i64;
                }
            }
            Ok(Val::Int(found))
        }
        ("join", [Val::List(list), rest @ ..]) => {
            let separator = match rest {
                [Val::Text(separator)] => separator,
                _ => "",
            };
            let parts: Vec<Arc<str>> = list.items.iter().map(to_text).collect::<Result<_>>()?;
            Ok(Val::text(parts.join(separator)))
        }
        ("sets.contains", [Val::List(a), Val::List(b)]) => Ok(Val::Bool(includes(a, b)?)),
        ("sets.equivalent", [Val::List(a), Val::List(b)]) => {
            Ok(Val::Bool(includes(a, b)? && includes(b, a)?))
        }
        ("sets.intersects", [Val::List(a), Val::List(b)]) => {
            for item in &a.items {
                if position(&b.items, item)?.is_some() {
                    return Ok(Val::Bool(true));
                }
            }
            Ok(Val::Bool(false))
        }
        ("optional.of", [value]) => Ok(Val::Optional(Some(Arc::new(value.clone())))),
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("hasValue", [Val::Optional(inner)]) => Ok(Val::Bool(inner.is_some())),
        ("value", [Val::Optional(inner)]) => match inner {
            Some(inner) => Ok(inner.as_ref().clone()),
            None => fail("optional.none() dereference"),
        },
        ("orValue", [Val::Optional(inner), other]) => {
            Ok(inner.as_ref().map_or_else(|| other.clone(), |inner| inner.as_ref().clone()))
        }
        ("or", [first @ Val::Optional(inner), other]) => {
            Ok(if inner.is_some() { first.clone() } else { other.clone() })
        }
        ("matches", [Val::Text(text), Val::Text(pattern)]) => {
            Ok(Val::Bool(compiled(pattern)?.is_match(text)))
        }
        ("find", [Val::Text(text), Val::Text(pattern)]) => {
            let found = compiled(pattern)?.find(text).map_or("", |found| found.as_str());
            Ok(Val::text(found))
        }
        ("findAll", [Val::Text(text), Val::Text(pattern), rest @ ..]) => {
            let limit = match rest {
                [Val::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            let pattern = compiled(pattern)?;
            let found = pattern.find_iter(text).take(limit).map(|found| Val::text(found.as_str()));
            Ok(Val::list(found.collect()))
        }
        (name, [Val::Text(subject), rest @ ..]) => text::call(name, subject, rest),
        (name, [Val::Timestamp(at)]) if name.starts_with("get") => part_of_time(name, *at),
        (name, [Val::Duration(nanos)]) if name.starts_with("get") => {
            let unit = match name {
                "getHours" => 3_600_000_000_000,
                "getMinutes" => 60_000_000_000,
                "getSeconds" => 1_000_000_000,
                "getMilliseconds" => 1_000_000,
                _ => return Err(Failure::overload()),
            };
            Ok(Val::Int(nanos / unit))
        }
        _ => Err(Failure::overload()),
    }
}

fn overflow() -> Failure {
    Failure::Error("integer overflow".into())
}

fn compiled(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|_| Failure::Error(format!("error parsing regexp: `{pattern}`")))
}

fn position(items: &[Val], wanted: &Val) -> Result<Option<usize>> {
    for (at, item) in items.iter().enumerate() {
        if equal(item, wanted)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Whether the first has everything that the second has.
fn includes(a: &List, b: &List) -> Result<bool> {
    for item in &b.items {
        if position(&a.items, item)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn at(container: &Val, key: &Val, optional: bool) -> Result<Val> {
    match container {
        Val::Optional(None) => Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => at(inner, key, true),
        container => match (index(container, key)?, optional) {
            (Ok(found), false) => Ok(found),
            (Ok(found), true) => Ok(Val::Optional(Some(Arc::new(found)))),
            (Err(_), true) => Ok(Val::Optional(None)),
            (Err(why), false) => fail(why),
        },
    }
}

fn size(value: &Val) -> Result<Val> {
    let size = match value {
        Val::Text(text) => text.chars().count(),
        Val::Bytes(bytes) => bytes.len(),
        Val::List(list) => list.items.len(),
        Val::Map(entries) => entries.len(),
        _ => return fail("no such overload: size"),
    };
    Ok(Val::Int(size as i64))
}

fn arithmetic(name: &str, a: &Val, b: &Val) -> Result<Val> {
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => {
            let result = match name {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                "_*_" => a.checked_mul(*b),
                "_/_" if *b == 0 => return fail("division by zero"),
                "_%_" if *b == 0 => return fail("modulus by zero"),
                "_/_" => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Val::Int).ok_or_else(overflow)
        }
        (Val::Uint(a), Val::Uint(b)) => {
            let result = match name {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                "_*_" => a.checked_mul(*b),
                "_/_" if *b == 0 => return fail("division by zero"),
                "_%_" if *b == 0 => return fail("modulus by zero"),
                "_/_" => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Val::Uint).ok_or_else(|| Failure::Error("unsigned integer overflow".into()))
        }
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(match name {
            "_+_" => a + b,
            "_-_" => a - b,
            "_*_" => a * b,
            "_/_" => a / b,
            _ => return Err(Failure::overload()),
        })),
        (Val::Text(a), Val::Text(b)) if name == "_+_" => Ok(Val::text(format!("{a}{b}"))),
        (Val::Bytes(a), Val::Bytes(b)) if name == "_+_" => Ok(Val::Bytes([&a[..], &b[..]].concat().into())),
        (Val::List(a), Val::List(b)) if name == "_+_" => added(a, b),
        (Val::Duration(a), Val::Duration(b)) => {
            let result = match name {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                _ => return Err(Failure::overload()),
            };
            result.map(Val::Duration).ok_or_else(|| Failure::Error("duration overflow".into()))
        }
        (Val::Timestamp(a), Val::Timestamp(b)) if name == "_-_" => {
            let nanos = a.as_nanosecond() - b.as_nanosecond();
            let nanos = i64::try_from(nanos).map_err(|_| Failure::Error("duration overflow".into()))?;
            Ok(Val::Duration(nanos))
        }
        (Val::Timestamp(at), Val::Duration(nanos)) if matches!(name, "_+_" | "_-_") => {
            moved(*at, if name == "_+_" { i128::from(*nanos) } else { -i128::from(*nanos) })
        }
        (Val::Duration(nanos), Val::Timestamp(at)) if name == "_+_" => moved(*at, i128::from(*nanos)),
        _ => Err(Failure::overload()),
    }
}

fn moved(at: jiff::Timestamp, nanos: i128) -> Result<Val> {
    jiff::Timestamp::from_nanosecond(at.as_nanosecond() + nanos)
        .map(Val::Timestamp)
        .map_err(|_| Failure::Error("timestamp overflow".into()))
}

/// Two lists as one. Sets keep each element once; of keyed elements the second replaces the first.
fn added(a: &List, b: &List) -> Result<Val> {
    let mut items = a.items.clone();
    for item in &b.items {
        match &a.flavour {
            Flavour::Literal | Flavour::Atomic => items.push(item.clone()),
            Flavour::Set => {
                if position(&items, item)?.is_none() {
                    items.push(item.clone());
                }
            }
            Flavour::Keyed(keys) => {
                let mut place = None;
                for (at, known) in items.iter().enumerate() {
                    if place.is_none() && keys_equal(keys, known, item)? {
                        place = Some(at);
                    }
                }
                match place {
                    Some(at) => items[at] = item.clone(),
                    None => items.push(item.clone()),
                }
            }
        }
    }
    Ok(Val::List(Arc::new(List { items, flavour: a.flavour.clone() })))
}

fn over_list(name: &str, items: &[Val]) -> Result<Val> {
    if name == "isSorted" {
        for pair in items.windows(2) {
            if compare(&pair[0], &pair[1])? == Ordering::Greater {
                return Ok(Val::Bool(false));
            }
        }
        return Ok(Val::Bool(true));
    }
    let Some((first, rest)) = items.split_first() else {
        return match name {
            "sum" => Ok(Val::Int(0)),
            _ => fail(format!("{name} called on empty list")),
        };
    };
    let mut result = first.clone().whole()?;
    for item in rest {
        result = match name {
            "sum" => arithmetic("_+_", &result, item)?,
            "min" if compare(item, &result)? == Ordering::Less => item.clone(),
            "max" if compare(item, &result)? == Ordering::Greater => item.clone(),
            _ => result,
        };
    }
    Ok(result)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
fn convert(name: &str, value: &Val) -> Result<Val> {
    let full = match name {
        "timestamp" => "google.protobuf.Timestamp",
        "duration" => "google.protobuf.Duration",
        other => other,
    };
    let wrong = || fail(format!("type conversion error from 'string' to '{full}'"));
    Ok(match (name, value) {
        ("dyn", value) => value.clone(),
        ("int", Val::Int(_))
        | ("uint", Val::Uint(_))
        | ("double", Val::Double(_))
        | ("bool", Val::Bool(_))
        | ("bytes", Val::Bytes(_))
        | ("timestamp", Val::Timestamp(_))
        | ("duration", Val::Duration(_)) => value.clone(),
        ("string", value) => Val::Text(to_text(value)?),
        ("int", Val::Uint(n)) => Val::Int(i64::try_from(*n).map_err(|_| overflow())?),
        ("int", Val::Double(d)) if d.abs() < 9.223_372_036_854_775e18 => Val::Int(d.trunc() as i64),
        ("int", Val::Double(_)) => return Err(overflow()),
        ("int", Val::Timestamp(at)) => Val::Int(at.as_second()),
        ("uint", Val::Int(n)) => {
            Val::Uint(u64::try_from(*n).map_err(|_| Failure::Error("unsigned integer overflow".into()))?)
        }
        ("uint", Val::Double(d)) if (0.0..1.844_674_407_370_955e19).contains(d) => {
            Val::Uint(d.trunc() as u64)
        }
        ("uint", Val::Double(_)) => return fail("unsigned integer overflow"),
        ("double", Val::Int(n)) => Val::Double(*n as f64),
        ("double", Val::Uint(n)) => Val::Double(*n as f64),
        ("bytes", Val::Text(text)) => Val::Bytes(text.as_bytes().into()),
        ("timestamp", Val::Int(seconds)) => match jiff::Timestamp::from_second(*seconds) {
            Ok(at) => Val::Timestamp(at),
            Err(_) => return fail("timestamp overflow"),
        },
        (name, Val::Text(text)) => {
            let found = match name {
                "int" => text.parse().ok().map(Val::Int),
                "uint" => text.parse().ok().map(Val::Uint),
                "double" => text.parse().ok().map(Val::Double),
                "bool" => match &**text {
                    "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(Val::Bool(true)),
                    "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(Val::Bool(false)),
                    _ => None,
                },
                "timestamp" => time::timestamp(text).map(Val::Timestamp),
                "duration" => time::duration(text).map(Val::Duration),
                _ => None,
            };
            return found.map_or_else(wrong, Ok);
        }
        _ => return Err(Failure::overload()),
    })
}

/// In UTC, as everything without a time zone.
fn part_of_time(name: &str, at: jiff::Timestamp) -> Result<Val> {
    let local = at.to_zoned(jiff::tz::TimeZone::UTC);
    let part = match name {
        "getFullYear" => i64::from(local.year()),
        "getMonth" => i64::from(local.month()) - 1,
        "getDate" => i64::from(local.day()),
        "getDayOfMonth" => i64::from(local.day()) - 1,
        "getDayOfWeek" => i64::from(local.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(local.day_of_year()) - 1,
        "getHours" => i64::from(local.hour()),
        "getMinutes" => i64::from(local.minute()),
        "getSeconds" => i64::from(local.second()),
        "getMilliseconds" => i64::from(local.millisecond()),
        _ => return Err(Failure::overload()),
    };
    Ok(Val::Int(part))
}
