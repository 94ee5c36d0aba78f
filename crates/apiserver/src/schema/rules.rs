//! `x-kubernetes-validations`: compiling the rules of a schema, and holding objects to them.
//!
//! A rule about a value sees it as `self`, and what it was before an update as `oldSelf`. Rules that use `oldSelf`
//! only run where the old value is known: fields, map values, and elements of lists that have keys. A rule that
//! does not look back and fails on a value that did not change only warns.

use serde_json::Value as Json;

use super::{ListKind, Rule, Schema, Shape};
use crate::cel::check::Variables;
use crate::cel::decl::{Decl, is_embedded};
use crate::cel::types::Type;
use crate::cel::value::{Failure, Val};
use crate::cel::{CompileError, Program};
use crate::status::{FieldError, FieldErrorKind};

/// The work all rules together may do on one object.
const BUDGET: u64 = 10_000_000;

/// The longest message that a rule may make.
const MAX_MESSAGE: usize = 5 * 1024;

/// A rule that is ready to be evaluated.
#[derive(Debug)]
pub struct Compiled {
    decl: Decl,
    program: Program,
    message: Option<Program>,
    looks_back: bool,
    /// `.field['other']` as a path.
    field_path: String,
}

/// What is wrong with the rules of a schema (at `path` in its definition), or what they need that is missing here.
pub fn check_schema(schema: &Json, path: &str) -> Result<Vec<FieldError>, String> {
    let mut errors = Vec::new();
    visit_schema(schema, true, path, None, &mut errors)?;
    Ok(errors)
}

fn visit_schema(
    schema: &Json,
    resource: bool,
    path: &str,
    uncorrelated: Option<&str>,
    errors: &mut Vec<FieldError>,
) -> Result<(), String> {
    let rules = schema.get("x-kubernetes-validations").and_then(Json::as_array);
    for (index, rule) in rules.into_iter().flatten().enumerate() {
        let at = format!("{path}.x-kubernetes-validations[{index}]");
        check_rule(schema, resource, rule, &at, uncorrelated, errors)?;
    }
    for (name, property) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
        let at = format!("{path}.properties[{name}]");
        visit_schema(property, is_embedded(property), &at, uncorrelated, errors)?;
    }
    for part in ["items", "additionalProperties"] {
        let Some(inner) = schema.get(part).filter(|inner| inner.is_object()) else { continue };
        let keyed = schema.get("x-kubernetes-list-type").and_then(Json::as_str) == Some("map");
        // Elements without keys cannot be found again after an update.
        let uncorrelated = uncorrelated.or_else(|| (part == "items" && !keyed).then_some(path));
        visit_schema(inner, is_embedded(inner), &format!("{path}.{part}"), uncorrelated, errors)?;
    }
    Ok(())
}

fn check_rule(
    schema: &Json,
    resource: bool,
    json: &Json,
    at: &str,
    uncorrelated: Option<&str>,
    errors: &mut Vec<FieldError>,
) -> Result<(), String> {
    let rule = Rule::from_json(json);
    let Some(decl) = Decl::of(schema, resource) else {
        return Err("a rule on a value without a type".to_owned());
    };
    let variables = variables(&decl, rule.optional_old_self);
    let wrong =
        |field: &str, detail: String| FieldError::invalid(format!("{at}.{field}"), shown(json), detail);
    let program = match Program::compile_as(&rule.rule, &variables, &Type::Bool) {
        Err(CompileError::Unsupported(what)) => return Err(what),
        Err(error) => {
            let bad = "cel expression must evaluate to a bool";
            errors.push(wrong("rule", complaint(&error, bad, "compilation failed")));
            None
        }
        Ok(program) => Some(program),
    };
    if let Some(source) = rule.message_expression.as_deref().filter(|_| program.is_some()) {
        match Program::compile_as(source, &variables, &Type::Text) {
            Err(CompileError::Unsupported(what)) => return Err(what),
            Err(error) => {
                let bad = "messageExpression must evaluate to a string";
                let why = complaint(&error, bad, "messageExpression compilation failed");
                errors.push(wrong("messageExpression", why));
            }
            Ok(_) => {}
        }
    }
    let looks_back = program.is_some_and(|program| program.uses("oldSelf"));
    if let Some(within) = uncorrelated.filter(|_| looks_back) {
        errors.push(FieldError::invalid(
            format!("{at}.rule"),
            &*rule.rule,
            format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"),
        ));
    }
    if let Some(set) = json.get("optionalOldSelf").and_then(Json::as_bool).filter(|_| !looks_back) {
        errors.push(FieldError::invalid(
            format!("{at}.optionalOldSelf"),
            set,
            "may not be set if oldSelf is not used in rule",
        ));
    }
    Ok(())
}

fn complaint(error: &CompileError, wrong_result: &str, failed: &str) -> String {
    match error {
        CompileError::WrongResult(_) => wrong_result.to_owned(),
        other => format!("{failed}: {other}"),
    }
}

/// A rule as complaints about it show it.
fn shown(rule: &Json) -> Json {
    let text = |key: &str| rule.get(key).and_then(Json::as_str).unwrap_or_default();
    serde_json::json!({
        "Rule": text("rule"),
        "Message": text("message"),
        "MessageExpression": text("messageExpression"),
        "Reason": rule.get("reason"),
        "FieldPath": text("fieldPath"),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    })
}

fn variables(decl: &Decl, optional: bool) -> Variables {
    let own = decl.cel_type("selfType");
    let old = if optional { Type::optional(own.clone()) } else { own.clone() };
    [("self", own), ("oldSelf", old)].into()
}

impl Compiled {
    /// Nothing for a rule that has mistakes: definitions with such rules are refused when they are written.
    pub fn new(schema: &Json, resource: bool, rule: &Rule) -> Option<Self> {
        let decl = Decl::of(schema, resource)?;
        let variables = variables(&decl, rule.optional_old_self);
        let program = Program::compile_as(&rule.rule, &variables, &Type::Bool).ok()?;
        let message = match &rule.message_expression {
            Some(source) => Some(Program::compile_as(source, &variables, &Type::Text).ok()?),
            None => None,
        };
        let looks_back = program.uses("oldSelf");
        let field_path = rule.field_path.as_deref().and_then(|path| normal_path(path, schema));
        Some(Self { decl, program, message, looks_back, field_path: field_path.unwrap_or_default() })
    }
}

/// `.spec['a-b'].c` as a path, if the schema has such a field.
pub fn normal_path(path: &str, schema: &Json) -> Option<String> {
    let mut rest = path;
    let mut found = String::new();
    let mut schema = schema;
    while !rest.is_empty() {
        let (name, after) = if let Some(inner) = rest.strip_prefix("['") {
            let end = inner.char_indices().find(|(at, c)| *c == '\'' && !inner[..*at].ends_with('\\'))?.0;
            let name = inner[..end].replace("\\'", "'").replace("\\\\", "\\");
            (name, inner[end + 1..].strip_prefix(']')?)
        } else {
            let inner = rest.strip_prefix('.')?;
            let end = inner.find(['.', '[', ']']).unwrap_or(inner.len());
            (inner[..end].to_owned(), &inner[end..])
        };
        if name.is_empty() {
            return None;
        }
        if let Some(properties) = schema.get("properties") {
            schema = properties.get(&name)?;
            if !found.is_empty() {
                found.push('.');
            }
            found.push_str(&name);
        } else {
            schema = schema.get("additionalProperties").filter(|inner| inner.is_object())?;
            found = format!("{found}[{name}]");
        }
        rest = after;
    }
    Some(found)
}

/// What the rules say about an object.
#[derive(Debug, Default)]
pub struct Findings {
    pub errors: Vec<FieldError>,
    pub warnings: Vec<String>,
}

/// Whether any part of a schema has rules.
pub fn has_rules(schema: &Schema) -> bool {
    schema.checks.as_ref().is_some_and(|checks| !checks.rules.is_empty())
        || match &schema.shape {
            Shape::Object { fields, .. } => fields.iter().any(|(name, field)| {
                field.name().is_none() && &**name != "metadata" && has_rules(field.get())
            }),
            Shape::Map { value, .. } => has_rules(value.get()),
            Shape::List { item, .. } => has_rules(item.get()),
            _ => false,
        }
}

/// Holds an object to the rules of its schema. `old` is what it was before an update.
pub fn evaluate(schema: &Schema, object: &Json, old: Option<&Json>) -> Findings {
    let mut walk = Walk { findings: Findings::default(), left: BUDGET };
    let pair = Pair { value: object, old };
    let current = old.is_some().then_some(pair);
    let place = Place { path: "", value: object, old, current, nearest: None };
    // Whoever ran out of budget has been told.
    let _ = walk.visit(schema, &place);
    walk.findings
}

/// A value and what it was, for telling whether it changed.
#[derive(Clone, Copy)]
struct Pair<'a> {
    value: &'a Json,
    old: Option<&'a Json>,
}

#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a str,
    value: &'a Json,
    /// The old self, where it is known.
    old: Option<&'a Json>,
    /// The same, for telling whether a failure is news; and that of the nearest value around that has one.
    current: Option<Pair<'a>>,
    nearest: Option<Pair<'a>>,
}

impl Place<'_> {
    fn unchanged(&self) -> bool {
        self.current.or(self.nearest).is_some_and(|pair| pair.old == Some(pair.value))
    }
}

struct Walk {
    findings: Findings,
    left: u64,
}

/// The budget is used up; nothing more is evaluated.
struct Exhausted;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

impl Walk {
    fn visit(&mut self, schema: &Schema, place: &Place<'_>) -> Result<(), Exhausted> {
        if place.value.is_null() {
            return Ok(());
        }
        for rule in schema.checks.iter().flat_map(|checks| &checks.rules) {
            if let Some(compiled) = &rule.compiled {
                self.rule(schema, rule, compiled, place)?;
            }
        }
        match (&schema.shape, place.value) {
            (Shape::Object { fields, .. }, Json::Object(object)) => {
                for (name, value) in object {
                    let Some(field) = fields.get(name.as_str()) else { continue };
                    let dot = if place.path.is_empty() { "" } else { "." };
                    let path = format!("{}{dot}{name}", place.path);
                    self.child(field.get(), place, name, value, &path)?;
                }
            }
            (Shape::Map { value: inner, .. }, Json::Object(object)) => {
                for (name, value) in object {
                    self.child(inner.get(), place, name, value, &format!("{}[{name}]", place.path))?;
                }
            }
            (Shape::List { item, kind, .. }, Json::Array(items)) => {
                for (index, value) in items.iter().enumerate() {
                    let old = counterpart(kind, value, place.old);
                    let path = format!("{}[{index}]", place.path);
                    let (current, nearest) = match place.current {
                        Some(pair) => {
                            let matched = counterpart(kind, value, pair.old);
                            (matched.map(|old| Pair { value, old: Some(old) }), Some(pair))
                        }
                        None => (None, place.nearest),
                    };
                    self.visit(item.get(), &Place { path: &path, value, old, current, nearest })?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn child(
        &mut self,
        schema: &Schema,
        parent: &Place<'_>,
        name: &str,
        value: &Json,
        path: &str,
    ) -> Result<(), Exhausted> {
        let old = parent.old.and_then(|old| old.get(name)).filter(|old| !old.is_null());
        let (current, nearest) = match parent.current {
            Some(pair) => {
                let old = pair.old.and_then(|old| old.get(name));
                (Some(Pair { value, old }), Some(pair))
            }
            None => (None, parent.nearest),
        };
        self.visit(schema, &Place { path, value, old, current, nearest })
    }

    fn rule(
        &mut self,
        schema: &Schema,
        rule: &Rule,
        compiled: &Compiled,
        place: &Place<'_>,
    ) -> Result<(), Exhausted> {
        let kind = type_word(schema);
        if self.left == 0 {
            return self.exhausted(place.path, kind, OUT_OF_BUDGET.to_owned());
        }
        if compiled.looks_back && place.old.is_none() && !rule.optional_old_self {
            return Ok(());
        }
        let old = place.old.map(|old| compiled.decl.value(old));
        let mut variables = vec![("self", compiled.decl.value(place.value))];
        match old {
            _ if !compiled.looks_back => {}
            old if rule.optional_old_self => {
                variables.push(("oldSelf", Val::Optional(old.map(std::sync::Arc::new))));
            }
            old => variables.extend(old.map(|old| ("oldSelf", old))),
        }
        let about = rule.message.as_deref().filter(|m| !m.is_empty()).unwrap_or(&rule.rule).trim();
        let (result, left) = compiled.program.run(&variables, self.left);
        self.left = left;
        match result {
            Ok(Val::Bool(true)) => return Ok(()),
            Ok(_) => {}
            Err(failure @ Failure::TooExpensive) => {
                return self.exhausted(
                    place.path,
                    kind,
                    format!(
                        "'{failure}': no further validation rules will be run due to call cost exceeds limit \
                         for rule: {about}"
                    ),
                );
            }
            Err(failure) if failure.to_string().starts_with("no such overload") => {
                let detail = format!(
                    "'{failure}': call arguments did not match a supported operator, function or macro \
                     signature for rule: {about}"
                );
                self.findings.errors.push(FieldError::invalid(told(place.path), kind, detail));
                return Ok(());
            }
            Err(failure) => {
                let detail = format!("{failure} evaluating rule: {about}");
                self.findings.errors.push(FieldError::invalid(told(place.path), kind, detail));
                return Ok(());
            }
        }
        if left == 0 {
            return self.exhausted(place.path, kind, OUT_OF_BUDGET.to_owned());
        }
        let detail = self.message(compiled, &variables).unwrap_or_else(|| {
            match rule.message.as_deref().filter(|m| !m.is_empty()) {
                Some(message) => message.trim().to_owned(),
                None => format!("failed rule: {about}"),
            }
        });
        let error = broken(rule, compiled, place, kind, detail);
        if !compiled.looks_back && place.unchanged() {
            self.findings.warnings.push(error.to_string());
        } else {
            self.findings.errors.push(error);
        }
        Ok(())
    }

    /// The message that an expression makes, if it makes a good one.
    fn message(&mut self, compiled: &Compiled, variables: &[(&str, Val)]) -> Option<String> {
        let (made, left) = compiled.message.as_ref()?.run(variables, self.left);
        self.left = left;
        let Ok(Val::Text(text)) = made else { return None };
        let text = text.trim();
        (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
    }

    fn exhausted(&mut self, path: &str, kind: &str, detail: String) -> Result<(), Exhausted> {
        self.findings.errors.push(FieldError::invalid(told(path), kind, detail));
        Err(Exhausted)
    }
}

/// A path as complaints tell it: that of the whole object has no name.
const fn told(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}

fn broken(rule: &Rule, compiled: &Compiled, place: &Place<'_>, kind: &str, detail: String) -> FieldError {
    let path = match (place.path, compiled.field_path.as_str()) {
        (path, "") => told(path).to_owned(),
        ("", inner) => inner.to_owned(),
        (path, inner) => format!("{path}.{inner}"),
    };
    // Of objects and lists, complaints do not show the value.
    let value = (!matches!(kind, "object" | "array")).then(|| place.value.clone());
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
        Some("FieldValueRequired") => FieldError::required(path, detail),
        Some("FieldValueDuplicate") => FieldError::new(FieldErrorKind::Duplicate, path, value, ""),
        _ => FieldError::new(FieldErrorKind::Invalid, path, value, detail),
    }
}

/// The element of the old list that an element of the new one was.
fn counterpart<'a>(kind: &ListKind, value: &Json, old: Option<&'a Json>) -> Option<&'a Json> {
    let ListKind::Map(keys) = kind else { return None };
    old?.as_array()?
        .iter()
        .find(|other| keys.iter().all(|key| other.get(key.as_ref()) == value.get(key.as_ref())))
}

fn type_word(schema: &Schema) -> &'static str {
    match schema.shape {
        Shape::Object { .. } | Shape::Map { .. } => "object",
        Shape::List { .. } => "array",
        Shape::String => "string",
        Shape::Integer => "integer",
        Shape::Number => "number",
        Shape::Boolean => "boolean",
        Shape::IntOrString | Shape::Any => "",
    }
}
