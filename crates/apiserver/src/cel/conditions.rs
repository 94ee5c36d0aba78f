//! `matchConditions` of webhooks: whether one wants to hear of a request.

use serde_json::Value as Json;

use super::check::Variables;
use super::types::Type;
use super::value::Val;
use super::{CompileError, Program};

/// The work all conditions of a webhook together may do.
const BUDGET: u64 = 2_500_000;

/// Variables of a real server that have no value here.
const MISSING: [&str; 2] = ["authorizer", "namespaceObject"];

/// Conditions that are ready to be evaluated.
#[derive(Debug, Default)]
pub struct Conditions(Vec<(String, Program)>);

/// What conditions say about a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Wanted,
    Unwanted,
    /// It could not be told; what that means depends on the failure policy.
    Failed(String),
}

/// Why an expression cannot be a condition.
#[derive(Debug, PartialEq, Eq)]
pub enum Complaint {
    Invalid(String),
    /// It needs something that only a real server has.
    Missing(String),
}

pub fn check(source: &str) -> Result<(), Complaint> {
    match compile(source) {
        Ok(_) => Ok(()),
        Err(CompileError::Unsupported(what)) => Err(Complaint::Missing(what)),
        Err(CompileError::WrongResult(found)) => {
            Err(Complaint::Invalid(format!("must evaluate to bool but got {found}")))
        }
        Err(CompileError::Invalid(why)) => Err(Complaint::Invalid(format!("compilation failed: {why}"))),
    }
}

fn compile(source: &str) -> Result<Program, CompileError> {
    let program = Program::compile_as(source, &variables(), &Type::Bool)?;
    match MISSING.iter().find(|name| program.uses(name)) {
        Some(name) => Err(CompileError::Unsupported(format!("the variable {name}"))),
        None => Ok(program),
    }
}

fn variables() -> Variables {
    let text = || Type::Text;
    let kind = Type::object(
        "kubernetes.GroupVersionKind",
        [("group", text()), ("version", text()), ("kind", text())],
    );
    let resource = Type::object(
        "kubernetes.GroupVersionResource",
        [("group", text()), ("version", text()), ("resource", text())],
    );
    let user = Type::object(
        "kubernetes.UserInfo",
        [
            ("username", text()),
            ("uid", text()),
            ("groups", Type::list(text())),
            ("extra", Type::map(text(), Type::list(text()))),
        ],
    );
    let request = Type::object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    );
    let mut variables: Variables =
        [("object", Type::Dyn), ("oldObject", Type::Dyn), ("request", request)].into();
    variables.extend(MISSING.map(|name| (name, Type::Dyn)));
    variables
}

impl Conditions {
    /// The conditions of a webhook. They were checked when it was written.
    pub fn of(webhook: &Json) -> Self {
        let list = webhook.get("matchConditions").and_then(Json::as_array);
        let source = |condition: &Json| {
            let source = condition.get("expression").and_then(Json::as_str).unwrap_or_default();
            compile(source).ok().map(|program| (source.to_owned(), program))
        };
        Self(list.into_iter().flatten().filter_map(source).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Judges the `request` of an admission review.
    pub fn judge(&self, request: &Json) -> Verdict {
        let mut seen = request.clone();
        let (mut object, mut old) = (Val::Null, Val::Null);
        if let Some(fields) = seen.as_object_mut() {
            object = fields.remove("object").map_or(Val::Null, |json| Val::free(&json));
            old = fields.remove("oldObject").map_or(Val::Null, |json| Val::free(&json));
            fields.remove("uid");
        }
        let variables = [("object", object), ("oldObject", old), ("request", Val::free(&seen))];
        let mut left = BUDGET;
        let mut failures = Vec::new();
        for (source, program) in &self.0 {
            let (result, rest) = program.run(&variables, left);
            left = rest;
            if left == 0 {
                return Verdict::Failed(
                    "validation failed due to running out of cost budget, no further validation rules will \
                     be run"
                        .into(),
                );
            }
            match result {
                // One that says no decides, whatever the others failed at.
                Ok(Val::Bool(false)) => return Verdict::Unwanted,
                Ok(_) => {}
                Err(failure) => failures.push(format!("expression '{source}' resulted in error: {failure}")),
            }
        }
        match failures.as_slice() {
            [] => Verdict::Wanted,
            [one] => Verdict::Failed(one.clone()),
            many => Verdict::Failed(format!("[{}]", many.join(", "))),
        }
    }
}
