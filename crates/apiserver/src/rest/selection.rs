//! Which objects of a kind a request selects by labels and fields.

use std::borrow::Cow;

use evac_apimachinery::labels::Selector;

use super::call::Call;
use crate::kinds::{Kind, Kinds};
use crate::selector::FieldSelector;
use crate::server::selectable_labels;
use crate::status::ApiError;
use crate::store::Meta;

/// A compiled selection: where each field is found was settled once.
pub struct Selection {
    labels: Selector,
    fields: FieldSelector,
    places: Vec<(String, Place)>,
}

#[derive(Clone, Copy)]
enum Place {
    Name,
    Namespace,
    Value(usize),
}

impl Selection {
    pub fn of(call: &Call, kinds: &Kinds) -> Result<Self, ApiError> {
        let labels =
            Selector::parse(&call.query.label_selector).map_err(|e| ApiError::bad_request(e.to_string()))?;
        let fields = FieldSelector::parse(&call.query.field_selector)
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        call.kind.check_field_selector(&fields)?;
        let stored = stored_kind(&call.kind, kinds);
        let places = fields
            .labels()
            .filter_map(|label| place(&call.kind, stored, label).map(|at| (label.to_owned(), at)))
            .collect();
        Ok(Self { labels, fields, places })
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub fn selects(&self, meta: &Meta) -> bool {
        (self.labels.is_everything() || self.labels.matches_with(|key| meta.label(key)))
            && (self.fields.is_everything()
                || self.fields.matches(|label| self.value(meta, label).map(Cow::Borrowed)))
    }

    fn value<'a>(&self, meta: &'a Meta, label: &str) -> Option<&'a str> {
        let (_, place) = self.places.iter().find(|(known, _)| known == label)?;
        match place {
            Place::Name => Some(&meta.name),
            Place::Namespace => Some(&meta.namespace),
            Place::Value(at) => meta.fields.get(*at).map(|value| &**value),
        }
    }
}

/// The kind whose field table the stored values follow. It differs from the asked one where two kinds
/// share a storage.
fn stored_kind<'a>(kind: &'a Kind, kinds: &'a Kinds) -> &'a Kind {
    let (group, plural) = &kind.storage;
    if *group == kind.group && *plural == kind.plural {
        return kind;
    }
    kinds.iter().find(|k| k.group == *group && k.plural == *plural).map_or(kind, |k| k)
}

fn place(kind: &Kind, stored: &Kind, label: &str) -> Option<Place> {
    match label {
        "metadata.name" => return Some(Place::Name),
        "metadata.namespace" => return Some(Place::Namespace),
        _ => {}
    }
    let found = if let Some(field) = kind.strategy.fields.iter().find(|f| f.label == label) {
        stored.strategy.fields.iter().position(|f| f.at == field.at)
    } else {
        selectable_labels(stored).position(|known| known == label)
    };
    found.map(Place::Value)
}
