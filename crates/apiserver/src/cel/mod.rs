//! The expression language of Kubernetes (CEL), as far as this server evaluates it.
//!
//! ```text
//! source ──lex, parse──▶ tree ──check against declared types──▶ Program ──evaluate, within a budget──▶ value
//! ```
//!
//! What does not compile on a real server does not compile here, and is told in the same words (but for syntax
//! errors, which come from another parser). What a real server knows and this one does not is
//! [`CompileError::Unsupported`]: whoever sent it gets 501.

mod ast;
pub(crate) mod check;
pub(crate) mod decl;
mod eval;
mod lex;
mod library;
mod parse;
mod signatures;
#[cfg(test)]
mod tests;
mod text;
mod time;
pub(crate) mod types;
pub(crate) mod value;

pub mod conditions;

use std::sync::Arc;

use check::Variables;
use eval::{Evaluation, Scope};
use types::Type;
use value::{Failure, Val};

/// The work one expression may do.
const CALL_LIMIT: u64 = 1_000_000;

/// Longer expressions are not read.
const MAX_LENGTH: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Wrong on a real server, too.
    #[error("{0}")]
    Invalid(String),
    /// The result has another type than is wanted here.
    #[error("the result is {0}")]
    WrongResult(String),
    /// Something that this server does not have.
    #[error("{0}")]
    Unsupported(String),
}

impl CompileError {
    /// One complaint about a place in the source.
    fn at(source: &str, at: usize, why: &str) -> Self {
        Self::Invalid(shown(source, at, why))
    }

    fn all(source: &str, complaints: &[(usize, String)]) -> Self {
        let shown: Vec<String> = complaints.iter().map(|(at, why)| shown(source, *at, why)).collect();
        Self::Invalid(shown.join("\n"))
    }
}

/// A complaint with the line it is about and a mark below the place.
fn shown(source: &str, at: usize, why: &str) -> String {
    let mut start = 0;
    let (mut number, mut text) = (1, "");
    for (n, line) in source.split('\n').enumerate() {
        let length = line.chars().count();
        (number, text) = (n + 1, line);
        if at <= start + length {
            break;
        }
        start += length + 1;
    }
    let column = at.saturating_sub(start);
    let wide = |c: char, narrow: char, wide: char| if c.len_utf8() > 1 { wide } else { narrow };
    let mut mark: String = text.chars().take(column).map(|c| wide(c, '.', '．')).collect();
    mark.push(wide(text.chars().nth(column).unwrap_or(' '), '^', '＾'));
    let text = text.replace('\t', " ");
    format!("ERROR: <input>:{number}:{}: {why}\n | {text}\n | {mark}", column + 1)
}

/// An expression that is ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Program {
    expr: ast::Expr,
    result: Type,
    uses: Vec<String>,
}

impl Program {
    pub(crate) fn compile(source: &str, variables: &Variables) -> Result<Self, CompileError> {
        let length = source.chars().count();
        if length > MAX_LENGTH {
            let why = format!("expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}");
            return Err(CompileError::Invalid(format!("ERROR: <input>:-1:0: {why}")));
        }
        let expr = parse::parse(source)?;
        let checked = check::check(source, &expr, variables)?;
        Ok(Self { expr, result: checked.result, uses: checked.uses })
    }

    /// Compiles an expression whose result has a known type.
    pub(crate) fn compile_as(
        source: &str,
        variables: &Variables,
        wanted: &Type,
    ) -> Result<Self, CompileError> {
        let program = Self::compile(source, variables)?;
        if program.result == *wanted {
            return Ok(program);
        }
        Err(CompileError::WrongResult(program.result.to_string()))
    }

    pub(crate) fn uses(&self, variable: &str) -> bool {
        self.uses.iter().any(|used| used == variable)
    }

    /// The value, and what is left of the budget. One expression may use no more than its own limit.
    pub(crate) fn run(&self, variables: &[(&str, Val)], budget: u64) -> (value::Result<Val>, u64) {
        let mut scope: Scope = variables.iter().map(|(name, v)| (Arc::from(*name), v.clone())).collect();
        let mut evaluation = Evaluation::new(&mut scope, CALL_LIMIT);
        let result = evaluation.eval(&self.expr);
        let used = CALL_LIMIT - evaluation.left;
        // Who ran out has used more than there was.
        let used = if matches!(result, Err(Failure::TooExpensive)) { used + 1 } else { used };
        (result, budget.saturating_sub(used))
    }
}
