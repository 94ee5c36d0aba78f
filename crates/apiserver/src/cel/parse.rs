//! From words to the tree of an expression. Macros are recognised here.

use std::sync::Arc;

use super::CompileError;
use super::ast::{Expr, Loop, LoopKind, Node, Way};
use super::lex::{Word, words};

/// Deeper trees are refused: they are walked by recursion.
const MAX_DEPTH: usize = 120;

const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub fn parse(source: &str) -> Result<Expr, CompileError> {
    let words = words(source)?;
    let mut parser = Parser { source, words: &words, next: 0, depth: 0 };
    let expr = parser.expression()?;
    match parser.peek() {
        Word::End => Ok(expr),
        _ => Err(parser.unexpected()),
    }
}

struct Parser<'a> {
    source: &'a str,
    words: &'a [(usize, Word)],
    next: usize,
    depth: usize,
}

/// How strongly a binary operator binds, and the name of its function.
fn binary(word: &Word) -> Option<(u8, &'static str)> {
    match word {
        Word::Ident(name) if &**name == "in" => Some((1, "@in")),
        Word::Sign(sign) => Some(match *sign {
            "==" => (1, "_==_"),
            "!=" => (1, "_!=_"),
            "<" => (1, "_<_"),
            "<=" => (1, "_<=_"),
            ">" => (1, "_>_"),
            ">=" => (1, "_>=_"),
            "+" => (2, "_+_"),
            "-" => (2, "_-_"),
            "*" => (3, "_*_"),
            "/" => (3, "_/_"),
            "%" => (3, "_%_"),
            _ => return None,
        }),
        _ => None,
    }
}

fn call(at: usize, name: &str, args: Vec<Expr>) -> Expr {
    Expr::new(at, Node::Call { name: name.into(), target: None, args })
}

impl Parser<'_> {
    fn peek(&self) -> &Word {
        self.words.get(self.next).map_or(&Word::End, |(_, word)| word)
    }

    fn at(&self) -> usize {
        self.words.get(self.next).map_or(0, |(at, _)| *at)
    }

    fn take(&mut self) -> Word {
        let word = self.peek().clone();
        self.next += 1;
        word
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Word::Sign(s) if *s == sign);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), CompileError> {
        if self.accept(sign) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&self) -> CompileError {
        let what = match self.peek() {
            Word::End => "<EOF>".to_owned(),
            Word::Ident(name) => name.to_string(),
            Word::Sign(sign) => (*sign).to_owned(),
            other => format!("{other:?}"),
        };
        CompileError::at(self.source, self.at(), &format!("Syntax error: unexpected '{what}'"))
    }

    fn expression(&mut self) -> Result<Expr, CompileError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let condition = self.logic(false)?;
        let at = self.at();
        let whole = if self.accept("?") {
            let yes = self.logic(false)?;
            self.expect(":")?;
            let no = self.expression()?;
            call(at, "_?_:_", vec![condition, yes, no])
        } else {
            condition
        };
        self.depth -= 1;
        bounded(whole)
    }

    /// A chain of `||` of chains of `&&`.
    fn logic(&mut self, and: bool) -> Result<Expr, CompileError> {
        let sign = if and { "&&" } else { "||" };
        let mut args = Vec::new();
        let mut place = None;
        loop {
            args.push(if and { self.operation(1)? } else { self.logic(true)? });
            let at = self.at();
            if !self.accept(sign) {
                break;
            }
            place.get_or_insert(at);
        }
        match (place, args.len()) {
            (Some(at), _) => bounded(Expr::new(at, Node::Logic { and, args })),
            (None, _) => args.pop().ok_or_else(|| self.unexpected()),
        }
    }

    fn operation(&mut self, strength: u8) -> Result<Expr, CompileError> {
        let mut left = self.unary()?;
        while let Some((binds, name)) = binary(self.peek()).filter(|(binds, _)| *binds >= strength) {
            let at = self.at();
            self.next += 1;
            let right = self.operation(binds + 1)?;
            left = bounded(call(at, name, vec![left, right]))?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, CompileError> {
        let at = self.at();
        let (sign, name) = match self.peek() {
            Word::Sign("!") => ("!", "!_"),
            Word::Sign("-") => ("-", "-_"),
            _ => return self.member(),
        };
        // A minus before a number belongs to the number.
        if sign == "-"
            && let Some((_, number @ (Word::Int(_) | Word::Double(_)))) = self.words.get(self.next + 1)
        {
            let node = match number {
                Word::Int(value) => Node::Int(
                    0_i64
                        .checked_sub_unsigned(*value)
                        .ok_or_else(|| CompileError::at(self.source, at, "invalid int literal"))?,
                ),
                Word::Double(value) => Node::Double(-value),
                _ => return Err(self.unexpected()),
            };
            self.next += 2;
            return self.suffixes(Expr::new(at, node));
        }
        let mut count = 0;
        while self.accept(sign) {
            count += 1;
        }
        let operand = self.member()?;
        // Two of them say nothing.
        if count % 2 == 0 { Ok(operand) } else { bounded(call(at, name, vec![operand])) }
    }

    fn member(&mut self) -> Result<Expr, CompileError> {
        let first = self.primary()?;
        self.suffixes(first)
    }

    fn suffixes(&mut self, mut operand: Expr) -> Result<Expr, CompileError> {
        loop {
            let at = self.at();
            operand = if self.accept(".") {
                let way = if self.accept("?") { Way::Optional } else { Way::Value };
                let Word::Ident(field) = self.peek().clone() else { return Err(self.unexpected()) };
                if matches!(&*field, "true" | "false" | "null" | "in") {
                    return Err(self.unexpected());
                }
                self.next += 1;
                let paren = self.at();
                if way == Way::Value && self.accept("(") {
                    let args = self.list(")")?;
                    self.method(paren, operand, field, args)?
                } else {
                    Expr::new(at, Node::Select { operand: Box::new(operand), field, way })
                }
            } else if self.accept("[") {
                let name = if self.accept("?") { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]")?;
                call(at, name, vec![operand, index])
            } else {
                return Ok(operand);
            };
            operand = bounded(operand)?;
        }
    }

    /// Expressions up to a closing sign.
    fn list(&mut self, end: &str) -> Result<Vec<Expr>, CompileError> {
        let mut found = Vec::new();
        while !self.accept(end) {
            if matches!(self.peek(), Word::Sign("?")) {
                return Err(CompileError::Unsupported("optional elements of a list".into()));
            }
            found.push(self.expression()?);
            if !self.accept(",") {
                self.expect(end)?;
                break;
            }
            // A list may end with a comma, arguments may not.
            if end == ")" && matches!(self.peek(), Word::Sign(")")) {
                return Err(self.unexpected());
            }
        }
        Ok(found)
    }

    fn primary(&mut self) -> Result<Expr, CompileError> {
        let at = self.at();
        let node = match self.take() {
            Word::Int(value) => Node::Int(
                i64::try_from(value).map_err(|_| CompileError::at(self.source, at, "invalid int literal"))?,
            ),
            Word::Uint(value) => Node::Uint(value),
            Word::Double(value) => Node::Double(value),
            Word::Text(text) => Node::Text(text),
            Word::Bytes(bytes) => Node::Bytes(bytes),
            Word::Sign("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Word::Sign("[") => Node::List(self.list("]")?),
            Word::Sign("{") => self.map()?,
            Word::Ident(name) => return self.named(at, name),
            _ => {
                self.next -= 1;
                return Err(self.unexpected());
            }
        };
        bounded(Expr::new(at, node))
    }

    fn map(&mut self) -> Result<Node, CompileError> {
        let mut entries = Vec::new();
        while !self.accept("}") {
            if matches!(self.peek(), Word::Sign("?")) {
                return Err(CompileError::Unsupported("optional entries of a map".into()));
            }
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?));
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Node::Map(entries))
    }

    fn named(&mut self, at: usize, name: Arc<str>) -> Result<Expr, CompileError> {
        let node = match &*name {
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            "null" => Node::Null,
            "in" => {
                self.next -= 1;
                return Err(self.unexpected());
            }
            _ => Node::Ident(name.clone()),
        };
        if !matches!(node, Node::Ident(_)) {
            return Ok(Expr::new(at, node));
        }
        let paren = self.at();
        if matches!(self.peek(), Word::Sign("{")) {
            return Err(CompileError::Unsupported("building objects".into()));
        }
        if !self.accept("(") {
            if RESERVED.contains(&&*name) {
                let why = format!("reserved identifier: {name}");
                return Err(CompileError::at(self.source, at, &why));
            }
            return Ok(Expr::new(at, node));
        }
        let mut args = self.list(")")?;
        if &*name != "has" || args.len() != 1 {
            return bounded(Expr::new(paren, Node::Call { name, target: None, args }));
        }
        match args.pop() {
            Some(Expr { node: Node::Select { operand, field, way: Way::Value }, .. }) => {
                Ok(Expr::new(paren, Node::Select { operand, field, way: Way::Test }))
            }
            other => {
                let at = other.map_or(paren, |arg| arg.at);
                Err(CompileError::at(self.source, at, "invalid argument to has() macro"))
            }
        }
    }

    /// A method, or one of the macros that look like one.
    fn method(&self, at: usize, target: Expr, name: Arc<str>, args: Vec<Expr>) -> Result<Expr, CompileError> {
        let kind = match (&*name, args.len()) {
            ("all", 2) => Some(LoopKind::All),
            ("exists", 2) => Some(LoopKind::Exists),
            ("exists_one" | "existsOne", 2) => Some(LoopKind::ExistsOne),
            ("map", 2 | 3) => Some(LoopKind::Map),
            ("filter", 2) => Some(LoopKind::Filter),
            ("all" | "exists" | "exists_one" | "existsOne", 3)
            | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
                return Err(CompileError::Unsupported(format!("{name}() with two variables")));
            }
            ("sortBy", 2) => return Err(CompileError::Unsupported("sortBy()".into())),
            ("optMap" | "optFlatMap", 2) => None,
            _ => {
                let target = Some(Box::new(target));
                return Ok(Expr::new(at, Node::Call { name, target, args }));
            }
        };
        let mut args = args.into_iter();
        let variable = args.next();
        let Some(Expr { node: Node::Ident(variable), .. }) = variable else {
            let at = variable.map_or(at, |arg| arg.at);
            let why = match kind {
                Some(LoopKind::Map | LoopKind::Filter) => "argument is not an identifier",
                Some(_) => "argument must be a simple name",
                None => "optMap() variable name must be a simple identifier",
            };
            return Err(CompileError::at(self.source, at, why));
        };
        let (Some(first), second) = (args.next(), args.next()) else { return Err(self.unexpected()) };
        let Some(kind) = kind else {
            let flat = &*name == "optFlatMap";
            let (optional, step) = (Box::new(target), Box::new(first));
            return Ok(Expr::new(at, Node::IfPresent { optional, variable, step, flat }));
        };
        let (condition, step) = match second {
            Some(second) => (Some(first), second),
            None => (None, first),
        };
        let repeated = Loop { kind, range: target, variable, condition, step };
        Ok(Expr::new(at, Node::Loop(Box::new(repeated))))
    }
}

fn bounded(expr: Expr) -> Result<Expr, CompileError> {
    if expr.depth > MAX_DEPTH { Err(too_deep()) } else { Ok(expr) }
}

fn too_deep() -> CompileError {
    CompileError::Unsupported(format!("an expression of more than {MAX_DEPTH} levels"))
}
