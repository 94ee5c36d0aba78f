//! Built-in kinds: their published JSON schemas, joined with our table of list semantics.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

use super::list_semantics::{FieldFacts, TypeFacts, facts};
use super::{GoFacts, ListKind, PatchStrategy, Schema, SchemaRef, Shape, Zero};

pub const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
pub const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
pub const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
pub const FIELDS_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
pub const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

/// The published types that were asked for, with everything they refer to.
#[derive(Debug)]
pub struct Types {
    generator: SchemaGenerator,
    loaded: BTreeMap<Arc<str>, SchemaRef>,
}

impl Default for Types {
    fn default() -> Self {
        Self::new()
    }
}

impl Types {
    pub fn new() -> Self {
        Self { generator: SchemaSettings::draft07().into_generator(), loaded: BTreeMap::new() }
    }

    /// The description of a published type. Loading a type again gives the same node.
    ///
    /// Defaults are present only on fields that are keys of a list, where server-side apply needs them to
    /// tell elements apart; defaulting of built-in kinds is written in code.
    pub fn load<T: JsonSchema>(&mut self) -> SchemaRef {
        let name = T::schema_name();
        if let Some(known) = self.loaded.get(name.as_ref()) {
            return known.clone();
        }
        let root = self.generator.subschema_for::<T>();
        let node = match reference(root.as_value()) {
            Some(definition) => self.definition(definition),
            None => SchemaRef::new(self.schema(root.as_value(), None, &FieldFacts::default())),
        };
        self.loaded.entry(Arc::from(name.as_ref())).or_insert_with(|| node.clone());
        node
    }

    /// A loaded type by its published name.
    pub fn get(&self, name: &str) -> Option<&SchemaRef> {
        self.loaded.get(name)
    }

    /// All loaded types by published name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SchemaRef)> {
        self.loaded.iter().map(|(name, node)| (name.as_ref(), node))
    }

    fn definition(&mut self, name: &str) -> SchemaRef {
        if let Some(known) = self.loaded.get(name) {
            return known.clone();
        }
        let node = SchemaRef::named(name);
        // Registered before it is filled, because types refer to themselves.
        self.loaded.insert(name.into(), node.clone());
        let content = self.generator.definitions().get(name).cloned().unwrap_or_default();
        let table = facts(name);
        let own = table.and_then(|t| t.get(".")).cloned().unwrap_or_default();
        let mut schema = if is_free(name) {
            let mut any = Schema::anything();
            any.preserve_unknown = true;
            any.opaque = name == RAW_EXTENSION;
            any.description = text(&content, "description");
            any
        } else {
            self.schema(&content, table, &own)
        };
        if name == QUANTITY {
            schema.format = Some("quantity".into());
        } else if name == MICRO_TIME {
            schema.format = Some("date-time-micro".into());
        }
        node.fill(schema);
        node
    }

    /// One node. `fields` are the facts of the type's fields, `own` those of this place.
    fn schema(&mut self, json: &Value, fields: Option<&'static TypeFacts>, own: &FieldFacts) -> Schema {
        let mut schema = Schema::of(self.shape(json, fields, own));
        schema.description = text(json, "description");
        schema.format = text(json, "format");
        schema.default.clone_from(&own.default);
        if !matches!(schema.shape, Shape::List { .. })
            && let Some(strategy) = &own.patch
        {
            schema.patch = strategy.clone();
        }
        let inlined: BTreeMap<Arc<str>, Arc<str>> = fields
            .into_iter()
            .flatten()
            .filter_map(|(field, facts)| Some((Arc::from(*field), facts.inlined.clone()?)))
            .collect();
        let zero: BTreeMap<Arc<str>, Zero> = fields
            .into_iter()
            .flatten()
            .filter_map(|(field, facts)| Some((Arc::from(*field), facts.zero?)))
            .collect();
        let described: BTreeMap<Arc<str>, Arc<str>> = json
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter(|(_, property)| reference(property).is_some())
            .filter_map(|(field, property)| Some((Arc::from(field.as_str()), text(property, "description")?)))
            .collect();
        let go = GoFacts {
            type_name: own.go.clone(),
            inlined,
            zero,
            described,
            values: if schema.is_scalar() { own.values.clone() } else { Vec::new() },
            granular: own.atomic == Some(false),
        };
        if go != GoFacts::default() {
            schema.go = Some(Box::new(go));
        }
        schema
    }

    fn shape(&mut self, json: &Value, fields: Option<&'static TypeFacts>, own: &FieldFacts) -> Shape {
        if json.get("x-kubernetes-int-or-string").is_some() {
            return Shape::IntOrString;
        }
        let atomic = own.atomic.unwrap_or(false);
        match json.get("type").and_then(Value::as_str) {
            Some("string") => Shape::String,
            Some("integer") => Shape::Integer,
            Some("number") => Shape::Number,
            Some("boolean") => Shape::Boolean,
            Some("array") => {
                let item_facts = FieldFacts {
                    go: own.go.as_deref().and_then(|go| go.strip_prefix("[]")).map(Arc::from),
                    values: own.values.clone(),
                    ..FieldFacts::default()
                };
                Shape::List {
                    item: self.node(json.get("items").unwrap_or(&Value::Null), &item_facts),
                    kind: own.list.clone().unwrap_or_else(|| kind_from_patch(own.patch.as_ref())),
                    patch: own.patch.clone().unwrap_or(PatchStrategy::Replace),
                }
            }
            Some("object") => {
                if let Some(Value::Object(properties)) = json.get("properties") {
                    let described = properties
                        .iter()
                        .map(|(name, property)| {
                            let own = fields.and_then(|t| t.get(name.as_str())).cloned().unwrap_or_default();
                            (Arc::from(name.as_str()), self.node(property, &own))
                        })
                        .collect();
                    Shape::Object { fields: described, required: required(json, fields), atomic }
                } else if let Some(value) = json.get("additionalProperties").filter(|v| v.is_object()) {
                    let value_facts = FieldFacts {
                        go: own.go.as_deref().and_then(|go| go.strip_prefix("map[string]")).map(Arc::from),
                        values: own.values.clone(),
                        ..FieldFacts::default()
                    };
                    Shape::Map { value: self.node(value, &value_facts), atomic }
                } else {
                    Shape::Object { fields: BTreeMap::new(), required: Vec::new(), atomic }
                }
            }
            _ => Shape::Any,
        }
    }

    /// The node of a field, element or map value.
    fn node(&mut self, json: &Value, own: &FieldFacts) -> SchemaRef {
        let Some(definition) = reference(json) else {
            return SchemaRef::new(self.schema(json, None, own));
        };
        let target = self.definition(definition);
        if own.atomic.is_none() && own.patch.is_none() && own.default.is_none() {
            return target;
        }
        // The field treats its type differently than the type asks for: give it a copy of its own.
        let copy = SchemaRef::copy_of(&target);
        let mut schema = target.get().clone();
        if own.atomic == Some(false) {
            schema.go.get_or_insert_default().granular = true;
        }
        if let (Shape::Object { atomic, .. } | Shape::Map { atomic, .. }, Some(wanted)) =
            (&mut schema.shape, own.atomic)
        {
            *atomic = wanted;
        }
        if let Some(strategy) = &own.patch {
            schema.patch = strategy.clone();
        }
        if own.default.is_some() {
            schema.default.clone_from(&own.default);
        }
        copy.fill(schema);
        copy
    }
}

/// A list whose type only says how patches merge it.
fn kind_from_patch(strategy: Option<&PatchStrategy>) -> ListKind {
    match strategy {
        Some(PatchStrategy::Merge { key: Some(key), .. }) => ListKind::Map(vec![key.clone()]),
        Some(PatchStrategy::Merge { key: None, .. }) => ListKind::Set,
        _ => ListKind::Atomic,
    }
}

/// Types that hold any JSON.
pub fn is_free(name: &str) -> bool {
    name == RAW_EXTENSION
        || name == FIELDS_V1
        || name.strip_prefix(EXTENSIONS).is_some_and(|short| {
            matches!(
                short,
                "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray"
            )
        })
}

fn text(json: &Value, key: &str) -> Option<Arc<str>> {
    json.get(key).and_then(Value::as_str).map(Arc::from)
}

/// The required fields of a type. In Rust an object always has metadata, in Kubernetes it need not.
fn required(json: &Value, facts: Option<&'static TypeFacts>) -> Vec<Arc<str>> {
    let said = |field: &str| facts.and_then(|f| f.get(field)).and_then(|f| f.needed);
    let in_rust = json.get("required").and_then(Value::as_array).into_iter().flatten();
    let mut all: Vec<Arc<str>> = in_rust
        .filter_map(Value::as_str)
        .filter(|field| said(field).unwrap_or(*field != "metadata"))
        .map(Arc::from)
        .collect();
    let added = facts.into_iter().flatten().filter(|(_, f)| f.needed == Some(true));
    all.extend(added.map(|(field, _)| Arc::from(*field)));
    all.sort_unstable();
    all.dedup();
    all
}

/// The definition a JSON schema node refers to, directly or through a single `allOf`.
fn reference(json: &Value) -> Option<&str> {
    let direct = json.get("$ref").and_then(Value::as_str);
    let wrapped = || match json.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref").and_then(Value::as_str),
        _ => None,
    };
    direct.or_else(wrapped).and_then(|path| path.rsplit('/').next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps, core, policy};

    #[test]
    fn a_deployment_reaches_the_ports_of_its_containers_with_their_keys() {
        let mut types = Types::new();
        let node = types.load::<apps::v1::Deployment>();
        let mut at = node;
        for field in ["spec", "template", "spec", "containers"] {
            at = at.get().field(field).expect(field).clone();
        }
        let Shape::List { item, kind, .. } = &at.get().shape else { panic!("{:?}", at.get().shape) };
        assert_eq!(kind, &ListKind::Map(vec!["name".into()]));
        assert_eq!(item.name(), Some("io.k8s.api.core.v1.Container"));
        let ports = item.get().field("ports").expect("ports");
        let Shape::List { item, .. } = &ports.get().shape else { panic!("a list") };
        assert_eq!(item.get().field("protocol").expect("protocol").get().default, Some("TCP".into()));
    }

    #[test]
    fn a_field_may_treat_its_type_differently_without_changing_the_type() {
        let mut types = Types::new();
        let volume = types.load::<core::v1::PersistentVolume>();
        let spec = volume.get().field("spec").expect("spec").get();
        let claim = spec.field("claimRef").expect("claimRef");
        assert!(matches!(claim.get().shape, Shape::Object { atomic: false, .. }));
        let plain = types.load::<core::v1::ObjectReference>();
        assert!(matches!(plain.get().shape, Shape::Object { atomic: true, .. }));

        let budget = types.load::<policy::v1::PodDisruptionBudget>();
        let selector = budget.get().field("spec").expect("spec").get().field("selector").expect("selector");
        assert_eq!(selector.get().patch, PatchStrategy::Replace);
    }

    #[test]
    fn recursive_and_free_types_are_loaded_once() {
        use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as ext;
        let mut types = Types::new();
        types.load::<ext::CustomResourceDefinition>();
        let props = types.get(&format!("{EXTENSIONS}JSONSchemaProps")).expect("loaded").clone();
        let Shape::Map { value, .. } = &props.get().field("properties").expect("properties").get().shape
        else {
            panic!("a map")
        };
        assert_eq!(value.name(), props.name());
        let free = types.get(&format!("{EXTENSIONS}JSON")).expect("loaded");
        assert!(matches!(free.get().shape, Shape::Any));
    }

    /// A list that the table does not know would silently be atomic.
    #[test]
    fn every_list_of_a_loaded_type_is_in_the_table() {
        let mut types = Types::new();
        types.load::<core::v1::Node>();
        types.load::<core::v1::Pod>();
        types.load::<core::v1::Service>();
        types.load::<core::v1::PersistentVolume>();
        types.load::<core::v1::PersistentVolumeClaim>();
        types.load::<apps::v1::StatefulSet>();
        types.load::<apps::v1::DaemonSet>();
        types.load::<k8s_openapi::api::batch::v1::CronJob>();
        types.load::<policy::v1::PodDisruptionBudget>();
        types.load::<k8s_openapi::api::lifecycle::v1alpha1::EvictionRequest>();
        let mut unknown = Vec::new();
        for (name, node) in types.iter() {
            if let Shape::Object { fields, .. } = &node.get().shape {
                for (field, child) in fields {
                    if matches!(child.get().shape, Shape::List { .. })
                        && facts(name)
                            .and_then(|t| t.get(field.as_ref()))
                            .and_then(|f| f.list.as_ref())
                            .is_none()
                    {
                        unknown.push(format!("{name} {field}"));
                    }
                }
            }
        }
        assert_eq!(unknown, Vec::<String>::new());
    }
}
