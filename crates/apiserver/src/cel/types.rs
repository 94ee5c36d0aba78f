//! The types of expressions, and when one fits another.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Null,
    Timestamp,
    Duration,
    /// Known only when evaluated.
    Dyn,
    /// Something was complained about here already.
    Error,
    /// Still open: the element of `[]`, a parameter of a function.
    Var(usize),
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Optional(Arc<Type>),
    Object(Arc<ObjectType>),
}

/// An object with named fields. Two of the same name are the same.
#[derive(Debug)]
pub struct ObjectType {
    pub name: String,
    pub fields: BTreeMap<String, Type>,
}

impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Type {
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(inner: Self) -> Self {
        Self::Optional(Arc::new(inner))
    }

    pub fn object<const N: usize>(name: &str, fields: [(&str, Self); N]) -> Self {
        let fields = fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
        Self::Object(Arc::new(ObjectType { name: name.to_owned(), fields }))
    }

    const fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Types that may be null although they do not say so.
    const fn may_be_null(&self) -> bool {
        matches!(self, Self::Object(_) | Self::Optional(_) | Self::Timestamp | Self::Duration | Self::Null)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Null => f.write_str("null"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::Dyn | Self::Var(_) => f.write_str("dyn"),
            Self::Error => f.write_str("!error!"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Object(object) => f.write_str(&object.name),
        }
    }
}

/// What is known about open types.
#[derive(Debug, Default)]
pub struct Bindings {
    known: BTreeMap<usize, Type>,
    /// What was learnt since the beginning of a trial, with what was known before.
    trail: Vec<(usize, Option<Type>)>,
}

impl Bindings {
    /// The type with everything filled in that is known.
    pub fn resolve(&self, wanted: &Type) -> Type {
        match wanted {
            Type::Var(id) => self.known.get(id).map_or_else(|| wanted.clone(), |found| self.resolve(found)),
            Type::List(item) => Type::list(self.resolve(item)),
            Type::Map(key, value) => Type::map(self.resolve(key), self.resolve(value)),
            Type::Optional(inner) => Type::optional(self.resolve(inner)),
            other => other.clone(),
        }
    }

    /// Whether a value of one type may stand where the other is wanted; what is learnt is kept.
    pub fn fits(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        self.trail.clear();
        let fits = given.len() == wanted.len() && given.iter().zip(wanted).all(|(g, w)| self.unify(g, w));
        while let Some((id, before)) = self.trail.pop().filter(|_| !fits) {
            match before {
                Some(before) => self.known.insert(id, before),
                None => self.known.remove(&id),
            };
        }
        fits
    }

    fn learn(&mut self, id: usize, found: Type) {
        let before = self.known.insert(id, found);
        self.trail.push((id, before));
    }

    fn unify(&mut self, given: &Type, wanted: &Type) -> bool {
        match (given, wanted) {
            (Type::Var(a), Type::Var(b)) if a == b => true,
            (other, Type::Var(id)) | (Type::Var(id), other) => self.bind(*id, other),
            (a, b) if a.is_dynamic() || b.is_dynamic() => true,
            (Type::Null, other) | (other, Type::Null) => other.may_be_null(),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b),
            (Type::Map(ak, av), Type::Map(bk, bv)) => self.unify(ak, bk) && self.unify(av, bv),
            (a, b) => a == b,
        }
    }

    fn bind(&mut self, id: usize, other: &Type) -> bool {
        if let Some(known) = self.known.get(&id).cloned() {
            if !self.unify(other, &known) {
                return false;
            }
            let general = if less_specific(other, &known) { other.clone() } else { known };
            if !self.mentions(&general, id) {
                self.learn(id, general);
            }
            return true;
        }
        if self.mentions(other, id) {
            return false;
        }
        self.learn(id, other.clone());
        true
    }

    fn mentions(&self, within: &Type, id: usize) -> bool {
        match within {
            Type::Var(other) => {
                *other == id || self.known.get(other).is_some_and(|found| self.mentions(found, id))
            }
            Type::List(item) | Type::Optional(item) => self.mentions(item, id),
            Type::Map(key, value) => self.mentions(key, id) || self.mentions(value, id),
            _ => false,
        }
    }
}

/// Whether the first says at most as much as the second.
pub fn less_specific(first: &Type, second: &Type) -> bool {
    match (first, second) {
        (Type::Dyn | Type::Var(_), _) => true,
        (_, Type::Dyn | Type::Var(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => less_specific(a, b),
        (Type::Map(ak, av), Type::Map(bk, bv)) => less_specific(ak, bk) && less_specific(av, bv),
        (a, b) => a == b,
    }
}
