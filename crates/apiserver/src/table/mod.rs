//! Tables: what `kubectl get` shows, made by the server.
//!
//! A request with `as=Table` gets rows of cells instead of objects. Columns and cell texts are those of
//! kube-apiserver's printers; custom resources show their `additionalPrinterColumns`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::jsonpath::JsonPath;
use crate::kinds::Kind;

pub mod age;
mod cells;
mod cluster;
mod pods;
mod workloads;

pub use age::human_duration;

/// What stands in `object` of each row (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl Include {
    /// The query parameter; `None` for a value that is not one.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// How a table is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub include: Include,
    /// Column definitions; in a watch only the first event carries them.
    pub headers: bool,
    pub now: Timestamp,
}

/// One column: name, type, format, priority, description.
pub(crate) struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: i64,
    description: &'static str,
}

/// A column that `kubectl get` always shows.
pub(crate) const fn shown(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 0, description }
}

/// A column that only `-o wide` shows.
pub(crate) const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 1, description }
}

#[allow(clippy::needless_pass_by_value, reason = "a constant function cannot borrow and copy")]
pub(crate) const fn of_type(kind: &'static str, column: Column) -> Column {
    Column { kind, ..column }
}

pub(crate) const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    priority: 0,
    description: "Name of the object, unique within its namespace and kind.",
};
pub(crate) const AGE: Column = shown("Age", "Time since the object was created.");

/// How a kind is shown.
pub(crate) struct Layout {
    pub columns: &'static [Column],
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// Kinds without a printer of their own: name and creation time.
static PLAIN: Layout = Layout {
    columns: &[NAME, of_type("date", shown("Created At", "When the object was created."))],
    cells: |object, _| vec![cells::name(object), cells::text(object, "/metadata/creationTimestamp")],
};

fn layout(kind: &Kind) -> &'static Layout {
    workloads::layout(&kind.group, &kind.plural)
        .or_else(|| cluster::layout(&kind.group, &kind.plural))
        .unwrap_or(&PLAIN)
}

/// The table for some objects. `metadata` is the list's own (resource version, continue token), or for a
/// single object just its resource version.
#[allow(clippy::needless_pass_by_value, reason = "the metadata becomes part of the answer")]
pub fn render<'a>(
    kind: &Kind,
    objects: impl IntoIterator<Item = &'a Value>,
    metadata: Value,
    options: Options,
) -> Value {
    let custom = kind.custom.as_ref().map(|c| CustomLayout::new(&c.columns));
    let layout = layout(kind);
    let rows: Vec<Value> = objects
        .into_iter()
        .map(|object| {
            let cells = match &custom {
                Some(custom) => custom.cells(object, options.now),
                None => builtin_cells(kind, layout, object, options.now),
            };
            row(kind, object, cells, options.include)
        })
        .collect();
    let mut table = json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [],
        "rows": rows,
    });
    if options.headers {
        table["columnDefinitions"] = match &custom {
            Some(custom) => custom.headers(),
            None => Value::Array(layout.columns.iter().map(header).collect()),
        };
    }
    table
}

fn builtin_cells(kind: &Kind, layout: &Layout, object: &Value, now: Timestamp) -> Vec<Value> {
    match kind.to_stored() {
        // Printers know the stored form.
        Some(convert) => (layout.cells)(&convert(object.clone()), now),
        None => (layout.cells)(object, now),
    }
}

fn header(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

fn row(kind: &Kind, object: &Value, cells: Vec<Value>, include: Include) -> Value {
    let mut row = Map::new();
    row.insert("cells".into(), Value::Array(cells));
    if kind.group.is_empty()
        && kind.plural == "pods"
        && let Some(conditions) = pods::row_conditions(object)
    {
        row.insert("conditions".into(), conditions);
    }
    let shown = match include {
        Include::None => Value::Null,
        Include::Object => object.clone(),
        Include::Metadata => json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object.get("metadata").cloned().unwrap_or_default(),
        }),
    };
    row.insert("object".into(), shown);
    Value::Object(row)
}

/// The columns of a custom resource, with their paths parsed once.
struct CustomLayout<'a> {
    columns: Vec<(&'a crate::kinds::custom::PrinterColumn, Option<JsonPath>)>,
}

impl<'a> CustomLayout<'a> {
    fn new(columns: &'a [crate::kinds::custom::PrinterColumn]) -> Self {
        Self { columns: columns.iter().map(|c| (c, JsonPath::parse(&c.json_path).ok())).collect() }
    }

    fn headers(&self) -> Value {
        let mut headers = vec![header(&NAME)];
        for (column, _) in &self.columns {
            let description = if column.description.is_empty() {
                format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
            } else {
                column.description.clone()
            };
            headers.push(json!({
                "name": column.name,
                "type": column.column_type,
                "format": column.format,
                "description": description,
                "priority": column.priority,
            }));
        }
        Value::Array(headers)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut cells = vec![cells::name(object)];
        for (column, path) in &self.columns {
            let value = path.as_ref().and_then(|p| p.first(object));
            cells.push(value.map_or(Value::Null, |v| custom_cell(&column.column_type, v, now)));
        }
        cells
    }
}

fn custom_cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(n)) => {
            n.as_i64().or_else(|| n.as_f64().map(|f| f as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(n)) => n.as_f64().map_or(Value::Null, Value::from),
        ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => value.clone(),
        ("string", other) => Value::String(other.to_string()),
        ("date", Value::String(text)) => Value::String(
            text.parse::<Timestamp>()
                .map_or_else(|_| "<invalid>".to_owned(), |at| human_duration(now.duration_since(at))),
        ),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;
