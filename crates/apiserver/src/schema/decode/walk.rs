//! One walk over a document along a type: wrong types, unknown and duplicate fields are found in document
//! order while the value is built.

use std::sync::OnceLock;

use base64::Engine as _;
use evac_apimachinery::quantity::{self, QuantityError};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::super::builtin::{INT_OR_STRING, QUANTITY};
use super::super::{Schema, SchemaRef, Shape};

/// A document may not collect more complaints than this.
const MAX_COMPLAINTS: usize = 100;

/// What was found on the way.
#[derive(Debug, Default)]
pub(super) struct Walk<'s> {
    /// `unknown field "…"`, `duplicate field "…"`, in document order.
    pub strict: Vec<String>,
    /// The first value of a wrong type. The walk goes on, because a later value may be worse.
    pub wrong_type: Option<String>,
    /// A value whose own parser refused it. The walk ended there.
    pub refused: Option<String>,
    /// Whether duplicates inside undescribed values are reported.
    free_is_watched: bool,
    /// Where the walk is, for strict complaints (`spec.containers[0].image`).
    path: String,
    /// Where the walk is, for type complaints (`spec.containers.image`).
    go_path: String,
    go_struct: &'s str,
}

impl<'s> Walk<'s> {
    /// A walk over a built-in object: undescribed parts are not looked into.
    pub fn described() -> Self {
        Self::default()
    }

    /// A walk over a document without a type, where every duplicate counts.
    pub fn free() -> Self {
        Self { free_is_watched: true, ..Self::default() }
    }

    pub fn over<'de, D: Deserializer<'de>>(
        &mut self,
        schema: &'s SchemaRef,
        document: D,
    ) -> Result<Value, D::Error> {
        Seed { walk: self, node: schema }.deserialize(document)
    }

    fn complain(&mut self, what: &str, field: &str) {
        if self.strict.len() >= MAX_COMPLAINTS {
            return;
        }
        let dot = if self.path.is_empty() { "" } else { "." };
        let text = format!("{what} field {:?}", format!("{}{dot}{field}", self.path));
        if !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }

    fn mismatch_text(&self, what: &str, wanted: &str) -> String {
        if self.go_struct.is_empty() && self.go_path.is_empty() {
            format!("json: cannot unmarshal {what} into Go value of type {wanted}")
        } else {
            let (owner, path) = (self.go_struct, &self.go_path);
            format!("json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {wanted}")
        }
    }

    fn mismatch(&mut self, what: &str, node: &SchemaRef) {
        if self.wrong_type.is_none() {
            self.wrong_type = Some(self.mismatch_text(what, &go_type(node)));
        }
    }
}

/// The type of values nobody described.
fn free() -> &'static SchemaRef {
    static FREE: OnceLock<SchemaRef> = OnceLock::new();
    FREE.get_or_init(|| SchemaRef::new(Schema::anything()))
}

/// How the Go type behind a node is called.
pub(super) fn go_type(node: &SchemaRef) -> String {
    let schema = node.get();
    if let Some(name) = schema.go.as_ref().and_then(|go| go.type_name.as_deref()) {
        return name.to_owned();
    }
    if let Some(name) = node.name() {
        return short_name(name);
    }
    match &schema.shape {
        Shape::Any => "interface {}".to_owned(),
        Shape::String if schema.format.as_deref() == Some("byte") => "[]uint8".to_owned(),
        Shape::String => "string".to_owned(),
        Shape::Integer => schema.format.as_deref().unwrap_or("int64").to_owned(),
        Shape::Number => "float64".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::IntOrString => "intstr.IntOrString".to_owned(),
        Shape::Object { .. } => "struct {}".to_owned(),
        Shape::Map { value, .. } => format!("map[string]{}", go_type(value)),
        Shape::List { item, .. } => format!("[]{}", go_type(item)),
    }
}

/// `v1.PodSpec` of `io.k8s.api.core.v1.PodSpec`.
fn short_name(published: &str) -> String {
    let mut parts = published.rsplit('.');
    let name = parts.next().unwrap_or_default();
    parts.next().map_or_else(|| name.to_owned(), |package| format!("{package}.{name}"))
}

/// `PodSpec` of `io.k8s.api.core.v1.PodSpec`.
fn struct_name(node: &SchemaRef) -> &str {
    node.name().and_then(|name| name.rsplit('.').next()).unwrap_or_default()
}

struct Seed<'w, 's> {
    walk: &'w mut Walk<'s>,
    node: &'s SchemaRef,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'s> Seed<'_, 's> {
    fn schema(&self) -> &'s Schema {
        self.node.get()
    }

    /// Ends the walk with the complaint of a value's own parser.
    fn refuse<E: serde::de::Error>(self, why: String) -> Result<Value, E> {
        let error = E::custom(&why);
        self.walk.refused = Some(why);
        Err(error)
    }

    fn number<E: serde::de::Error>(self, number: Number, text: &str) -> Result<Value, E> {
        match &self.schema().shape {
            Shape::Any | Shape::Number => Ok(Value::Number(number)),
            Shape::Integer => {
                let fits = number.as_i64().is_some_and(|n| {
                    self.schema().format.as_deref() != Some("int32") || i32::try_from(n).is_ok()
                });
                if fits {
                    return Ok(Value::Number(number));
                }
                self.walk.mismatch(&format!("number {text}"), self.node);
                Ok(Value::Null)
            }
            Shape::IntOrString if self.node.name() == Some(QUANTITY) => self.quantity(text),
            Shape::IntOrString => {
                if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) {
                    return Ok(Value::Number(number));
                }
                let why = self.walk.mismatch_text(&format!("number {text}"), "int32");
                self.refuse(why)
            }
            Shape::String if self.schema().format.as_deref().is_some_and(is_time) => {
                let why = self.walk.mismatch_text("number", "string");
                self.refuse(why)
            }
            _ => {
                self.walk.mismatch("number", self.node);
                Ok(Value::Null)
            }
        }
    }

    fn quantity<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        match quantity::canonical(text.trim()) {
            Ok(canonical) => Ok(Value::String(canonical)),
            Err(error) => self.refuse(error.to_string()),
        }
    }

    fn text<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
        match &self.schema().shape {
            Shape::IntOrString if self.node.name() == Some(QUANTITY) => self.quantity(&text),
            Shape::Any | Shape::IntOrString => Ok(Value::String(text)),
            Shape::String => match self.schema().format.as_deref() {
                Some("byte") => {
                    if let Some(at) = bad_base64(&text)
                        && self.walk.wrong_type.is_none()
                    {
                        self.walk.wrong_type = Some(format!("illegal base64 data at input byte {at}"));
                    }
                    Ok(Value::String(text))
                }
                Some(format) if is_time(format) => match time(&text, format) {
                    Ok(time) => Ok(Value::String(time)),
                    Err(why) => self.refuse(why),
                },
                _ => Ok(Value::String(text)),
            },
            _ => {
                self.walk.mismatch("string", self.node);
                Ok(Value::Null)
            }
        }
    }

    fn fields<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Self { walk, node } = self;
        let schema = node.get();
        let Shape::Object { fields, .. } = &schema.shape else { return Ok(Value::Null) };
        let (path, go_path, go_struct) = (walk.path.len(), walk.go_path.len(), walk.go_struct);
        let mut object = Map::new();
        let mut nulls = false;
        while let Some(key) = map.next_key::<String>()? {
            let Some(field) = fields.get(key.as_str()) else {
                if schema.preserve_unknown {
                    object.insert(key, map.next_value()?);
                } else {
                    walk.complain("unknown", &key);
                    map.next_value::<IgnoredAny>()?;
                }
                continue;
            };
            if object.contains_key(&key) {
                walk.complain("duplicate", &key);
            }
            push(&mut walk.path, &key);
            if let Some(inlined) = schema.go.as_ref().and_then(|go| go.inlined.get(key.as_str())) {
                push(&mut walk.go_path, inlined);
            }
            push(&mut walk.go_path, &key);
            walk.go_struct = struct_name(node);
            let value = map.next_value_seed(Seed { walk: &mut *walk, node: field })?;
            walk.path.truncate(path);
            walk.go_path.truncate(go_path);
            walk.go_struct = go_struct;
            nulls |= value.is_null();
            object.insert(key, value);
        }
        if nulls {
            object.retain(|_, value| !value.is_null());
        }
        Ok(Value::Object(object))
    }

    fn entries<'de, A: MapAccess<'de>>(self, item: &'s SchemaRef, mut map: A) -> Result<Value, A::Error> {
        let Self { walk, node } = self;
        let described = !matches!(node.get().shape, Shape::Any);
        let watched = described || walk.free_is_watched;
        let path = walk.path.len();
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if watched {
                if object.contains_key(&key) {
                    walk.complain("duplicate", &key);
                }
                push(&mut walk.path, &key);
            }
            let mut value = map.next_value_seed(Seed { walk: &mut *walk, node: item })?;
            walk.path.truncate(path);
            if described && value.is_null() {
                value = zero(item);
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

impl<'de, 's> Visitor<'de> for Seed<'_, 's> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E: serde::de::Error>(self, set: bool) -> Result<Value, E> {
        match &self.schema().shape {
            Shape::Any | Shape::Boolean => Ok(Value::Bool(set)),
            Shape::IntOrString if self.node.name() == Some(QUANTITY) => {
                self.quantity(if set { "true" } else { "false" })
            }
            Shape::IntOrString => {
                let why = self.walk.mismatch_text("bool", "int32");
                self.refuse(why)
            }
            Shape::String if self.schema().format.as_deref().is_some_and(is_time) => {
                let why = self.walk.mismatch_text("bool", "string");
                self.refuse(why)
            }
            _ => {
                self.walk.mismatch("bool", self.node);
                Ok(Value::Null)
            }
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Value, E> {
        self.number(number.into(), &number.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Value, E> {
        self.number(number.into(), &number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        let Some(value) = Number::from_f64(number) else { return Ok(Value::Null) };
        let text = value.to_string();
        self.number(value, &text)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.text(text.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
        self.text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let (item, described): (&'s SchemaRef, bool) = match &self.schema().shape {
            Shape::List { item, .. } => (item, true),
            Shape::Any => (free(), false),
            Shape::IntOrString => {
                let wanted = if self.node.name() == Some(INT_OR_STRING) { "int32" } else { "string" };
                let why = if self.node.name() == Some(QUANTITY) {
                    QuantityError::Format.to_string()
                } else {
                    self.walk.mismatch_text("array", wanted)
                };
                self.walk.refused = Some(why);
                return Err(A::Error::custom("refused"));
            }
            _ => {
                self.walk.mismatch("array", self.node);
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Value::Null);
            }
        };
        let walk = self.walk;
        let watched = described || walk.free_is_watched;
        let path = walk.path.len();
        let mut list = Vec::new();
        loop {
            if watched {
                push_index(&mut walk.path, list.len());
            }
            let next = seq.next_element_seed(Seed { walk: &mut *walk, node: item })?;
            walk.path.truncate(path);
            let Some(mut value) = next else { break };
            if described && value.is_null() {
                value = zero(item);
            }
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        match &self.schema().shape {
            Shape::Object { .. } => self.fields(map),
            Shape::Map { value, .. } => self.entries(value, map),
            Shape::Any => self.entries(free(), map),
            Shape::IntOrString => {
                let why = if self.node.name() == Some(QUANTITY) {
                    QuantityError::Format.to_string()
                } else {
                    self.walk.mismatch_text("object", "int32")
                };
                self.walk.refused = Some(why);
                Err(A::Error::custom("refused"))
            }
            _ => {
                self.walk.mismatch("object", self.node);
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Value::Null)
            }
        }
    }
}

/// What a missing element or map value counts as.
fn zero(node: &SchemaRef) -> Value {
    match &node.get().shape {
        Shape::String => Value::String(String::new()),
        Shape::IntOrString if node.name() == Some(QUANTITY) => "0".into(),
        Shape::Integer | Shape::Number | Shape::IntOrString => 0.into(),
        Shape::Boolean => false.into(),
        Shape::Object { .. } => Value::Object(Map::new()),
        Shape::Any | Shape::Map { .. } | Shape::List { .. } => Value::Null,
    }
}

fn push(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn push_index(path: &mut String, index: usize) {
    use std::fmt::Write as _;
    let _ = write!(path, "[{index}]");
}

fn is_time(format: &str) -> bool {
    matches!(format, "date-time" | "date-time-micro")
}

/// A timestamp in the form the server writes: UTC, whole seconds or microseconds.
fn time(text: &str, format: &str) -> Result<String, String> {
    let micro = format == "date-time-micro";
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    // jiff also reads other forms of ISO 8601, which Go does not.
    let shaped = text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T') && text.as_bytes()[4] == b'-';
    let parsed = if shaped { text.parse::<jiff::Timestamp>().ok() } else { None };
    let Some(parsed) = parsed else {
        return Err(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""));
    };
    let digits = if micro { "%Y-%m-%dT%H:%M:%S%.6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(parsed.strftime(digits).to_string())
}

/// The position of the first byte that is not base64.
fn bad_base64(text: &str) -> Option<usize> {
    // Line breaks are skipped by the decoder Kubernetes uses.
    let compact: String = text.chars().filter(|c| *c != '\n' && *c != '\r').collect();
    match base64::engine::general_purpose::STANDARD.decode(compact.as_bytes()) {
        Ok(_) => None,
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Some(at)
        }
        // Padding that is too short counts against the end, missing padding against the last group.
        Err(_) if compact.contains('=') => Some(compact.len()),
        Err(_) => Some(compact.len() / 4 * 4),
    }
}
