//! Functions on texts. Places are counted in characters.

use std::sync::Arc;

use super::value::{Failure, Result, Val, fail};

pub fn call(name: &str, subject: &str, args: &[Val]) -> Result<Val> {
    match (name, args) {
        ("contains", [Val::Text(part)]) => Ok(Val::Bool(subject.contains(&**part))),
        ("startsWith", [Val::Text(part)]) => Ok(Val::Bool(subject.starts_with(&**part))),
        ("endsWith", [Val::Text(part)]) => Ok(Val::Bool(subject.ends_with(&**part))),
        ("lowerAscii", []) => Ok(Val::text(subject.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::text(subject.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::text(subject.trim())),
        ("charAt", [Val::Int(at)]) => {
            let chars: Vec<char> = subject.chars().collect();
            match usize::try_from(*at) {
                Ok(at) if at == chars.len() => Ok(Val::text("")),
                Ok(at) if at < chars.len() => Ok(Val::text(chars[at].to_string())),
                _ => out_of_range(*at),
            }
        }
        ("indexOf" | "lastIndexOf", [Val::Text(part), rest @ ..]) => {
            let from = match rest {
                [] => None,
                [Val::Int(from)] => Some(*from),
                _ => return Err(Failure::overload()),
            };
            search(subject, part, from, name == "lastIndexOf")
        }
        ("substring", [Val::Int(from)]) => {
            let length = subject.chars().count() as i64;
            if *from < 0 || *from > length {
                return out_of_range(*from);
            }
            Ok(Val::text(subject.chars().skip(to_usize(*from)).collect::<String>()))
        }
        ("substring", [Val::Int(from), Val::Int(to)]) => {
            let length = subject.chars().count() as i64;
            if from > to {
                return fail(format!("invalid substring range. start: {from}, end: {to}"));
            }
            for place in [from, to] {
                if *place < 0 || *place > length {
                    return out_of_range(*place);
                }
            }
            let part = subject.chars().skip(to_usize(*from)).take(to_usize(to - from));
            Ok(Val::text(part.collect::<String>()))
        }
        ("replace", [Val::Text(from), Val::Text(to)]) => Ok(Val::text(subject.replace(&**from, to))),
        ("replace", [Val::Text(from), Val::Text(to), Val::Int(times)]) => match usize::try_from(*times) {
            Ok(times) => Ok(Val::text(subject.replacen(&**from, to, times))),
            Err(_) => Ok(Val::text(subject.replace(&**from, to))),
        },
        ("split", [Val::Text(by)]) => Ok(split(subject, by, -1)),
        ("split", [Val::Text(by), Val::Int(limit)]) => Ok(split(subject, by, *limit)),
        _ => Err(Failure::overload()),
    }
}

fn out_of_range<T>(at: i64) -> Result<T> {
    fail(format!("index out of range: {at}"))
}

fn to_usize(n: i64) -> usize {
    usize::try_from(n).unwrap_or(0)
}

fn search(subject: &str, part: &str, from: Option<i64>, last: bool) -> Result<Val> {
    let (subject, part): (Vec<char>, Vec<char>) = (subject.chars().collect(), part.chars().collect());
    let length = subject.len() as i64;
    if let Some(from) = from {
        if part.is_empty() {
            return Ok(Val::Int(from));
        }
        if from < 0 || from > length {
            return out_of_range(from);
        }
    } else if part.is_empty() {
        return Ok(Val::Int(if last { length } else { 0 }));
    }
    let matches = |at: &usize| subject[*at..].starts_with(&part);
    let found = if last {
        let end = from.map_or(subject.len(), |from| (to_usize(from) + 1).min(subject.len()));
        (0..end).rev().find(matches)
    } else {
        (from.map_or(0, to_usize)..subject.len()).find(matches)
    };
    Ok(Val::Int(found.map_or(-1, |at| at as i64)))
}

fn split(subject: &str, by: &str, limit: i64) -> Val {
    let parts: Vec<Arc<str>> = match usize::try_from(limit) {
        Ok(0) => Vec::new(),
        Ok(limit) if by.is_empty() => {
            let chars: Vec<char> = subject.chars().collect();
            let alone = chars.len().min(limit - 1);
            let mut parts: Vec<Arc<str>> = chars[..alone].iter().map(|c| c.to_string().into()).collect();
            if alone < chars.len() {
                parts.push(chars[alone..].iter().collect::<String>().into());
            }
            parts
        }
        Ok(limit) => subject.splitn(limit, by).map(Arc::from).collect(),
        Err(_) if by.is_empty() => subject.chars().map(|c| c.to_string().into()).collect(),
        Err(_) => subject.split(by).map(Arc::from).collect(),
    };
    Val::list(parts.into_iter().map(Val::Text).collect())
}
