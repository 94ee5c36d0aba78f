//! Types of an expression: what is wrong with it before anything is evaluated, in the words of a real server.

use std::collections::BTreeMap;

use super::ast::{Expr, Loop, LoopKind, Node, Way};
use super::signatures::{Form, Function, function, is_type_name};
use super::types::{Bindings, Type, less_specific};
use super::{CompileError, time};

/// The variables an expression may use.
pub type Variables = BTreeMap<&'static str, Type>;

/// What is known of an expression that has no mistakes.
#[derive(Debug)]
pub struct Checked {
    pub result: Type,
    /// The variables it really uses.
    pub uses: Vec<String>,
}

pub fn check(source: &str, expr: &Expr, variables: &Variables) -> Result<Checked, CompileError> {
    let scope = variables.iter().map(|(name, t)| ((*name).to_owned(), t.clone())).collect();
    let mut checker = Checker {
        source,
        scope,
        inner: 0,
        bindings: Bindings::default(),
        open: 0,
        errors: Vec::new(),
        missing: None,
        uses: Vec::new(),
    };
    let result = checker.expr(expr);
    if let Some(missing) = checker.missing {
        return Err(CompileError::Unsupported(missing));
    }
    let result = closed(&checker.bindings.resolve(&result));
    checker.literals(expr);
    if checker.errors.is_empty() {
        return Ok(Checked { result, uses: checker.uses });
    }
    checker.errors.sort_by_key(|(at, _)| *at);
    Err(CompileError::all(source, &checker.errors))
}

/// What stayed open can be anything.
fn closed(open: &Type) -> Type {
    match open {
        Type::Var(_) => Type::Dyn,
        Type::List(item) => Type::list(closed(item)),
        Type::Map(key, value) => Type::map(closed(key), closed(value)),
        Type::Optional(inner) => Type::optional(closed(inner)),
        other => other.clone(),
    }
}

struct Checker<'a> {
    source: &'a str,
    /// Variables, the innermost last.
    scope: Vec<(String, Type)>,
    /// How many of them belong to macros.
    inner: usize,
    bindings: Bindings,
    open: usize,
    errors: Vec<(usize, String)>,
    /// The first thing that only a real server has.
    missing: Option<String>,
    uses: Vec<String>,
}

impl Checker<'_> {
    fn complain(&mut self, at: usize, why: String) -> Type {
        debug_assert!(at <= self.source.chars().count());
        self.errors.push((at, why));
        Type::Error
    }

    fn lacks(&mut self, what: impl Into<String>) -> Type {
        self.missing.get_or_insert(what.into());
        Type::Error
    }

    fn fresh(&mut self) -> Type {
        self.open += 1;
        Type::Var(self.open)
    }

    fn expr(&mut self, expr: &Expr) -> Type {
        match &expr.node {
            Node::Null => Type::Null,
            Node::Bool(_) => Type::Bool,
            Node::Int(_) => Type::Int,
            Node::Uint(_) => Type::Uint,
            Node::Double(_) => Type::Double,
            Node::Text(_) => Type::Text,
            Node::Bytes(_) => Type::Bytes,
            Node::Ident(name) => self.ident(expr.at, name),
            Node::Select { operand, field, way } => self.select(expr.at, operand, field, *way),
            Node::Call { name, target, args } => self.call(expr.at, name, target.as_deref(), args),
            Node::Logic { args, .. } => self.logic(args),
            Node::List(items) => {
                let mut joined = None;
                for item in items {
                    joined = Some(self.join(item, joined));
                }
                Type::list(joined.unwrap_or_else(|| self.fresh()))
            }
            Node::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for (key, value) in entries {
                    keys = Some(self.join(key, keys));
                    values = Some(self.join(value, values));
                }
                let key = keys.unwrap_or_else(|| self.fresh());
                Type::map(key, values.unwrap_or_else(|| self.fresh()))
            }
            Node::Loop(repeated) => self.repeat(expr.at, repeated),
            Node::IfPresent { optional, variable, step, flat } => {
                self.if_present(expr.at, optional, variable, step, *flat)
            }
        }
    }

    fn ident(&mut self, at: usize, name: &str) -> Type {
        let Some(place) = self.scope.iter().rposition(|(known, _)| known == name) else {
            if is_type_name(name) {
                return self.lacks(format!("the type {name} as a value"));
            }
            return self.complain(at, format!("undeclared reference to '{name}' (in container '')"));
        };
        if place < self.scope.len() - self.inner && !self.uses.iter().any(|used| used == name) {
            self.uses.push(name.to_owned());
        }
        self.scope[place].1.clone()
    }

    fn select(&mut self, at: usize, operand: &Expr, field: &str, way: Way) -> Type {
        let operand = self.expr(operand);
        let (target, optional) = match self.bindings.resolve(&operand) {
            Type::Optional(inner) => (inner.as_ref().clone(), true),
            other => (other, false),
        };
        let found = match &target {
            Type::Map(_, value) => value.as_ref().clone(),
            Type::Object(object) => match object.fields.get(field) {
                Some(found) => found.clone(),
                None => self.complain(at, format!("undefined field '{field}'")),
            },
            Type::Dyn | Type::Error => Type::Dyn,
            Type::Var(_) => {
                self.bindings.fits(std::slice::from_ref(&Type::Dyn), std::slice::from_ref(&target));
                Type::Dyn
            }
            other => {
                self.complain(at, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        match way {
            Way::Test => Type::Bool,
            Way::Value if !optional => found,
            _ => Type::optional(found),
        }
    }

    fn logic(&mut self, args: &[Expr]) -> Type {
        let found: Vec<Type> = args.iter().map(|arg| self.expr(arg)).collect();
        let mut result = Type::Bool;
        for (arg, t) in args.iter().zip(found) {
            if !self.must_be_bool(arg.at, &t) {
                result = Type::Error;
            }
        }
        result
    }

    fn must_be_bool(&mut self, at: usize, given: &Type) -> bool {
        let fits = self.bindings.fits(std::slice::from_ref(given), &[Type::Bool]);
        if !fits {
            let found = closed(&self.bindings.resolve(given));
            self.complain(at, format!("expected type 'bool' but found '{found}'"));
        }
        fits
    }

    /// Elements of a literal are of one type.
    fn join(&mut self, item: &Expr, before: Option<Type>) -> Type {
        let current = self.expr(item);
        let Some(before) = before else { return current };
        if self.bindings.fits(std::slice::from_ref(&before), std::slice::from_ref(&current)) {
            return if less_specific(&before, &current) { before } else { current };
        }
        let (wanted, found) = (self.bindings.resolve(&before), self.bindings.resolve(&current));
        self.complain(item.at, format!("expected type '{wanted}' but found '{found}'"))
    }

    fn call(&mut self, at: usize, name: &str, target: Option<&Expr>, args: &[Expr]) -> Type {
        let mut given: Vec<Type> = args.iter().map(|arg| self.expr(arg)).collect();
        let Some(target) = target else { return self.resolve(at, name, false, &given) };
        // `sets.contains(…)` is a function, unless somebody called a variable `sets`.
        if let Node::Ident(first) = &target.node
            && !self.scope.iter().any(|(known, _)| known == &**first)
            && function(&format!("{first}.{name}")).is_some()
        {
            return self.resolve(at, &format!("{first}.{name}"), false, &given);
        }
        if let Node::Ident(first) = &target.node
            && matches!(&**first, "strings" | "lists" | "sets" | "optional" | "format" | "math" | "base64")
            && !self.scope.iter().any(|(known, _)| known == &**first)
        {
            return self.lacks(format!("{first}.{name}()"));
        }
        given.insert(0, self.expr(target));
        self.resolve(at, name, true, &given)
    }

    fn resolve(&mut self, at: usize, name: &str, method: bool, given: &[Type]) -> Type {
        let forms = match function(name) {
            Some(Function::Known(forms)) => forms,
            Some(Function::Missing) => return self.lacks(format!("{name}()")),
            None => {
                return self.complain(at, format!("undeclared reference to '{name}' (in container '')"));
            }
        };
        let mut result: Option<Type> = None;
        for form in forms.iter().filter(|form| form.method == method) {
            let (wanted, made) = self.instance(form);
            if !self.bindings.fits(given, &wanted) {
                continue;
            }
            let made = self.bindings.resolve(&made);
            result = Some(match result {
                Some(before) if before != made => Type::Dyn,
                _ => made,
            });
        }
        if let Some(result) = result {
            return result;
        }
        // The sum of an empty list depends on its type, which only the whole numbers tell here.
        if name == "sum" && matches!(given, [Type::List(_)]) {
            return self.lacks("sum() of other than whole numbers");
        }
        // The forms with a time zone are left out.
        if name.starts_with("get") && given.len() == 2 {
            return self.lacks(format!("{name}() with a time zone"));
        }
        let shown: Vec<String> =
            given.iter().map(|t| closed(&self.bindings.resolve(t)).to_string()).collect();
        let shown = match shown.split_first() {
            Some((target, args)) if method => format!("{target}.({})", args.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        self.complain(at, format!("found no matching overload for '{name}' applied to '{shown}'"))
    }

    /// A form with open types of its own.
    fn instance(&mut self, form: &Form) -> (Vec<Type>, Type) {
        let (a, b) = (self.fresh(), self.fresh());
        let args = form.args.iter().map(|t| substituted(t, &a, &b)).collect();
        (args, substituted(&form.result, &a, &b))
    }

    fn within(&mut self, variable: &str, of: Type, step: &Expr) -> Type {
        self.scope.push((variable.to_owned(), of));
        self.inner += 1;
        let found = self.expr(step);
        self.inner -= 1;
        self.scope.pop();
        found
    }

    fn repeat(&mut self, at: usize, repeated: &Loop) -> Type {
        let Loop { kind, range, variable, condition, step } = repeated;
        let found = self.expr(range);
        let element = match self.bindings.resolve(&found) {
            Type::List(item) => item.as_ref().clone(),
            Type::Map(key, _) => key.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Var(_) => Type::Dyn,
            other => self.complain(
                range.at,
                format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or \
                     dynamic)"
                ),
            ),
        };
        let items = Type::list(self.fresh());
        if let Some(condition) = condition {
            let found = self.within(variable, element.clone(), condition);
            self.conditional(at, &found, &items);
        }
        let found = self.within(variable, element.clone(), step);
        match kind {
            LoopKind::All | LoopKind::Exists => {
                self.must_be_bool(step.at, &found);
                Type::Bool
            }
            LoopKind::ExistsOne => {
                self.conditional(at, &found, &Type::Int);
                Type::Bool
            }
            LoopKind::Filter => {
                self.conditional(at, &found, &Type::list(element.clone()));
                Type::list(element)
            }
            LoopKind::Map => Type::list(found),
        }
    }

    /// The condition of a macro that chooses.
    fn conditional(&mut self, at: usize, found: &Type, choice: &Type) {
        if !self.bindings.fits(std::slice::from_ref(found), &[Type::Bool]) {
            let found = closed(&self.bindings.resolve(found));
            let choice = closed(&self.bindings.resolve(choice));
            self.complain(
                at,
                format!("found no matching overload for '_?_:_' applied to '({found}, {choice}, {choice})'"),
            );
        }
    }

    fn if_present(&mut self, at: usize, optional: &Expr, variable: &str, step: &Expr, flat: bool) -> Type {
        let found = self.expr(optional);
        let inner = match self.bindings.resolve(&found) {
            Type::Optional(inner) => inner.as_ref().clone(),
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                return self.complain(
                    at,
                    format!("found no matching overload for 'hasValue' applied to '{other}.()'"),
                );
            }
        };
        let found = self.within(variable, inner, step);
        match self.bindings.resolve(&found) {
            Type::Optional(inner) if flat => Type::Optional(inner),
            Type::Dyn | Type::Error if flat => Type::optional(Type::Dyn),
            other if flat => {
                let shown = format!("(bool, {other}, optional_type(dyn))");
                self.complain(at, format!("found no matching overload for '_?_:_' applied to '{shown}'"))
            }
            other => Type::optional(other),
        }
    }

    /// Literals that can be judged without evaluating.
    fn literals(&mut self, expr: &Expr) {
        if let Node::Call { name, target, args } = &expr.node {
            let last = args.last();
            let wrong = match (&**name, last.map(|arg| &arg.node)) {
                ("matches", Some(Node::Text(pattern))) => regex::Regex::new(pattern).is_err(),
                ("duration", Some(Node::Text(text))) => time::duration(text).is_none(),
                ("timestamp", Some(Node::Text(text))) => time::timestamp(text).is_none(),
                _ => false,
            };
            if wrong && let Some(arg) = last {
                self.complain(arg.at, format!("invalid {name} argument"));
            }
            for inner in target.iter().map(AsRef::as_ref).chain(args) {
                self.literals(inner);
            }
            return;
        }
        match &expr.node {
            Node::Select { operand, .. } => self.literals(operand),
            Node::Logic { args, .. } | Node::List(args) => {
                for arg in args {
                    self.literals(arg);
                }
            }
            Node::Map(entries) => {
                for (key, value) in entries {
                    self.literals(key);
                    self.literals(value);
                }
            }
            Node::Loop(repeated) => {
                self.literals(&repeated.range);
                if let Some(condition) = &repeated.condition {
                    self.literals(condition);
                }
                self.literals(&repeated.step);
            }
            Node::IfPresent { optional, step, .. } => {
                self.literals(optional);
                self.literals(step);
            }
            _ => {}
        }
    }
}

fn substituted(wanted: &Type, a: &Type, b: &Type) -> Type {
    match wanted {
        Type::Var(0) => a.clone(),
        Type::Var(_) => b.clone(),
        Type::List(item) => Type::list(substituted(item, a, b)),
        Type::Map(key, value) => Type::map(substituted(key, a, b), substituted(value, a, b)),
        Type::Optional(inner) => Type::optional(substituted(inner, a, b)),
        other => other.clone(),
    }
}
