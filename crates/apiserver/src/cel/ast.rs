//! The tree of an expression. Macros are nodes of their own, so that nobody has to recognise them again.

use std::sync::Arc;

/// One node and where it stands: the place of its operator, which is where complaints about it point.
#[derive(Debug, Clone)]
pub struct Expr {
    /// Counted in characters from the beginning of the source.
    pub at: usize,
    /// How many levels stand below this one; bounded, because the tree is walked by recursion.
    pub depth: usize,
    pub node: Node,
}

#[derive(Debug, Clone)]
pub enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Ident(Arc<str>),
    /// `operand.field`, `has(operand.field)` or `operand.?field`.
    Select {
        operand: Box<Expr>,
        field: Arc<str>,
        way: Way,
    },
    /// A function or an operator. Operators have the names of the language (`_==_`).
    Call {
        name: Arc<str>,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    /// A whole chain of `&&` (or of `||`).
    Logic {
        and: bool,
        args: Vec<Expr>,
    },
    List(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    Loop(Box<Loop>),
    /// `optional.optMap(variable, step)`; `flat` when the step gives an optional itself.
    IfPresent {
        optional: Box<Expr>,
        variable: Arc<str>,
        step: Box<Expr>,
        flat: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Value,
    Test,
    Optional,
}

/// `range.all(variable, step)` and its kin.
#[derive(Debug, Clone)]
pub struct Loop {
    pub kind: LoopKind,
    pub range: Expr,
    pub variable: Arc<str>,
    /// The condition of `map` with three arguments.
    pub condition: Option<Expr>,
    pub step: Expr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

impl Expr {
    pub fn new(at: usize, node: Node) -> Self {
        let depth = 1 + children(&node).map(|child| child.depth).max().unwrap_or(0);
        Self { at, depth, node }
    }
}

fn children(node: &Node) -> impl Iterator<Item = &Expr> {
    let mut found: Vec<&Expr> = Vec::new();
    match node {
        Node::Select { operand, .. } => found.push(operand),
        Node::Call { target, args, .. } => {
            found.extend(target.as_deref());
            found.extend(args);
        }
        Node::Logic { args, .. } | Node::List(args) => found.extend(args),
        Node::Map(entries) => found.extend(entries.iter().flat_map(|(key, value)| [key, value])),
        Node::Loop(repeated) => {
            found.extend([&repeated.range, &repeated.step]);
            found.extend(&repeated.condition);
        }
        Node::IfPresent { optional, step, .. } => found.extend([optional.as_ref(), step.as_ref()]),
        _ => {}
    }
    found.into_iter()
}
