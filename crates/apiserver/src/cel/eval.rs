//! Evaluating a checked expression, within a budget.
//!
//! `&&`, `||`, `all` and `exists` do not mind a failure on one side when the other side decides.

use std::sync::Arc;

use super::ast::{Expr, Loop, LoopKind, Node, Way};
use super::library;
use super::value::{Failure, Result, Val, entry, fail, to_text};

/// The values of the variables, the innermost last.
pub type Scope = Vec<(Arc<str>, Val)>;

pub struct Evaluation<'a> {
    scope: &'a mut Scope,
    /// How much work may still be done.
    pub left: u64,
}

impl<'a> Evaluation<'a> {
    pub fn new(scope: &'a mut Scope, budget: u64) -> Self {
        Self { scope, left: budget }
    }

    pub fn charge(&mut self, cost: u64) -> Result<()> {
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or(0);
        left.map(drop).ok_or(Failure::TooExpensive)
    }

    pub fn eval(&mut self, expr: &Expr) -> Result<Val> {
        match &expr.node {
            Node::Null => Ok(Val::Null),
            Node::Bool(b) => Ok(Val::Bool(*b)),
            Node::Int(n) => Ok(Val::Int(*n)),
            Node::Uint(n) => Ok(Val::Uint(*n)),
            Node::Double(d) => Ok(Val::Double(*d)),
            Node::Text(text) => Ok(Val::Text(text.clone())),
            Node::Bytes(bytes) => Ok(Val::Bytes(bytes.clone())),
            Node::Ident(name) => {
                self.charge(1)?;
                match self.scope.iter().rev().find(|(known, _)| known == name) {
                    Some((_, value)) => value.clone().whole(),
                    None => fail(format!("no such attribute(s): {name}")),
                }
            }
            Node::Select { operand, field, way } => {
                let operand = self.eval(operand)?;
                self.charge(u64::from(*way != Way::Test))?;
                select(&operand, field, *way)
            }
            Node::Call { name, target, args } => self.call(name, target.as_deref(), args),
            Node::Logic { and, args } => self.logic(*and, args),
            Node::List(items) => {
                self.charge(10)?;
                Ok(Val::list(items.iter().map(|item| self.eval(item)).collect::<Result<_>>()?))
            }
            Node::Map(entries) => self.map(entries),
            Node::Loop(repeated) => self.repeat(repeated),
            Node::IfPresent { optional, variable, step, flat } => {
                let Val::Optional(found) = self.eval(optional)? else { return Err(Failure::overload()) };
                let Some(found) = found else { return Ok(Val::Optional(None)) };
                let result = self.within(variable, found.as_ref().clone(), step)?;
                Ok(if *flat { result } else { Val::Optional(Some(Arc::new(result))) })
            }
        }
    }

    fn within(&mut self, variable: &Arc<str>, value: Val, step: &Expr) -> Result<Val> {
        self.scope.push((variable.clone(), value));
        let result = self.eval(step);
        self.scope.pop();
        result
    }

    fn logic(&mut self, and: bool, args: &[Expr]) -> Result<Val> {
        let mut failure = None;
        for arg in args {
            match self.eval(arg) {
                // One `false` decides an `and`, one `true` an `or`.
                Ok(Val::Bool(b)) if b != and => return Ok(Val::Bool(b)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => {
                    failure.get_or_insert(Failure::overload());
                }
                Err(Failure::TooExpensive) => return Err(Failure::TooExpensive),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(Val::Bool(and)), Err)
    }

    fn map(&mut self, entries: &[(Expr, Expr)]) -> Result<Val> {
        self.charge(30)?;
        let mut found: Vec<(Val, Val)> = Vec::new();
        for (key, value) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            self.charge(found.len() as u64)?;
            if !matches!(key, Val::Text(_) | Val::Int(_) | Val::Uint(_) | Val::Bool(_)) {
                return fail("unsupported key type");
            }
            if entry(&found, &key)?.is_some() {
                return fail("Failed with repeated key");
            }
            found.push((key, value));
        }
        Ok(Val::Map(Arc::new(found)))
    }

    fn call(&mut self, name: &str, target: Option<&Expr>, args: &[Expr]) -> Result<Val> {
        if name == "_?_:_" {
            let [condition, yes, no] = args else { return Err(Failure::overload()) };
            let Val::Bool(condition) = self.eval(condition)? else { return Err(Failure::overload()) };
            self.charge(1)?;
            return self.eval(if condition { yes } else { no });
        }
        let mut full = name;
        let joined;
        let mut values = Vec::with_capacity(args.len() + 1);
        match target {
            // The checker made sure that this is no variable.
            Some(Expr { node: Node::Ident(first), .. })
                if !self.scope.iter().any(|(known, _)| known == first) =>
            {
                joined = format!("{first}.{name}");
                full = &joined;
            }
            Some(target) => values.push(self.eval(target)?),
            None => {}
        }
        for arg in args {
            values.push(self.eval(arg)?);
        }
        self.charge(library::cost(full, &values))?;
        library::call(full, &values)
    }

    fn repeat(&mut self, repeated: &Loop) -> Result<Val> {
        let Loop { kind, range, variable, condition, step } = repeated;
        let items: Vec<Val> = match self.eval(range)? {
            Val::List(list) => list.items.clone(),
            Val::Map(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
            other => return fail(format!("got '{}', expected iterable type", other.go_name())),
        };
        self.charge(1 + items.len() as u64)?;
        let mut failure = None;
        let (mut kept, mut matching) = (Vec::new(), 0_usize);
        for item in items {
            // A broken element is only a mistake for a step that looks at it.
            self.charge(1)?;
            if let Some(condition) = condition {
                match self.within(variable, item.clone(), condition)? {
                    Val::Bool(true) => {}
                    Val::Bool(false) => continue,
                    _ => return Err(Failure::overload()),
                }
            }
            let found = self.within(variable, item.clone(), step);
            match (kind, found) {
                (_, Err(Failure::TooExpensive)) => return Err(Failure::TooExpensive),
                (LoopKind::All, Ok(Val::Bool(false))) => return Ok(Val::Bool(false)),
                (LoopKind::Exists, Ok(Val::Bool(true))) => return Ok(Val::Bool(true)),
                (LoopKind::All, Ok(Val::Bool(true))) | (LoopKind::Exists, Ok(Val::Bool(false))) => {}
                (LoopKind::All | LoopKind::Exists, other) => {
                    failure.get_or_insert(other.err().unwrap_or_else(Failure::overload));
                }
                (LoopKind::Map, found) => kept.push(found?),
                (LoopKind::ExistsOne | LoopKind::Filter, found) => match found? {
                    Val::Bool(true) => {
                        matching += 1;
                        kept.push(item);
                    }
                    Val::Bool(false) => {}
                    _ => return Err(Failure::overload()),
                },
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        Ok(match kind {
            LoopKind::All => Val::Bool(true),
            LoopKind::Exists => Val::Bool(false),
            LoopKind::ExistsOne => Val::Bool(matching == 1),
            LoopKind::Map | LoopKind::Filter => Val::list(kept),
        })
    }
}

fn select(operand: &Val, field: &str, way: Way) -> Result<Val> {
    if let Val::Optional(inner) = operand {
        // Whatever is asked of nothing is nothing.
        return match (inner, way) {
            (None, Way::Test) => Ok(Val::Bool(false)),
            (None, _) => Ok(Val::Optional(None)),
            (Some(inner), Way::Test) => select(inner, field, way),
            (Some(inner), _) => select(inner, field, Way::Optional),
        };
    }
    let found = match operand {
        Val::Map(entries) => entry(entries, &Val::text(field))?.cloned(),
        Val::Object(object) => object.fields.get(field).cloned(),
        // What has no fields does not have this one.
        _ => None,
    };
    match (found, way) {
        (Some(Val::Broken(why)), _) => fail(&*why),
        (found, Way::Test) => Ok(Val::Bool(found.is_some())),
        (found, Way::Optional) => Ok(Val::Optional(found.map(Arc::new))),
        (Some(found), Way::Value) => Ok(found),
        (None, Way::Value) => fail(format!("no such key: {field}")),
    }
}

/// An element by number or by key; nothing when there is none.
pub fn index(container: &Val, key: &Val) -> Result<std::result::Result<Val, String>> {
    match (container, key) {
        (Val::List(list), Val::Int(at)) => {
            let found = usize::try_from(*at).ok().and_then(|at| list.items.get(at));
            match found {
                Some(found) => found.clone().whole().map(Ok),
                None => Ok(Err(format!("index out of bounds: {at}"))),
            }
        }
        (Val::Map(entries), key) => match entry(entries, key)? {
            Some(found) => found.clone().whole().map(Ok),
            // Data has texts as keys, and nothing else can be one.
            None if !matches!(key, Val::Text(_))
                && entries.iter().all(|(known, _)| matches!(known, Val::Text(_))) =>
            {
                fail(format!("unsupported map key type: {}", key.go_name()))
            }
            None => Ok(Err(format!("no such key: {}", to_text(key)?))),
        },
        (Val::List(_), key) => fail(format!("unsupported index type: {}", key.go_name())),
        // What has no elements does not have this one.
        (_, key) => Ok(Err(format!("no such key: {}", to_text(key)?))),
    }
}
