//! Nodes that fail because somebody wants to see it. A node says so itself, with an annotation:
//!
//! | `evac.dev/simulate` | meaning |
//! |---|---|
//! | `power-off` | the machine loses its power: its guests end, and nobody says so |
//! | `cut-off` | the node cannot be reached; what runs on it goes on |
//! | none | it works; a machine without power is started when the annotation is removed |

use k8s_openapi::api::core::v1::Node;

use crate::objects::annotation;

pub const ANNOTATION: &str = "evac.dev/simulate";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    On,
    CutOff,
    PowerOff,
}

/// What has to be done to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    CutOff,
    PowerOff,
    /// The network is back.
    Connect,
    /// The machine is started.
    Boot,
}

fn wish(node: &Node) -> Wish {
    match annotation(&node.metadata, ANNOTATION) {
        Some("power-off") => Wish::PowerOff,
        Some("cut-off") => Wish::CutOff,
        _ => Wish::On,
    }
}

/// What follows from a change of a node object.
pub fn switch(old: Option<&Node>, new: &Node) -> Option<Switch> {
    match (old.map_or(Wish::On, wish), wish(new)) {
        (before, after) if before == after => None,
        (_, Wish::PowerOff) => Some(Switch::PowerOff),
        (Wish::On, Wish::CutOff) => Some(Switch::CutOff),
        // Without power there is nothing to be reached either.
        (_, Wish::CutOff) => None,
        (Wish::PowerOff, Wish::On) => Some(Switch::Boot),
        (_, Wish::On) => Some(Switch::Connect),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::node;

    fn with(value: Option<&str>) -> Node {
        let mut node = node("n", "a");
        node.metadata.annotations = value.map(|value| [(ANNOTATION.to_owned(), value.to_owned())].into());
        node
    }

    #[test]
    fn only_a_change_of_the_annotation_switches_anything() {
        let between = |old, new| switch(Some(&with(old)), &with(new));
        assert_eq!(between(None, Some("power-off")), Some(Switch::PowerOff));
        assert_eq!(between(Some("power-off"), Some("power-off")), None);
        assert_eq!(between(Some("power-off"), None), Some(Switch::Boot));
        assert_eq!(between(None, Some("cut-off")), Some(Switch::CutOff));
        assert_eq!(between(Some("cut-off"), None), Some(Switch::Connect));
        assert_eq!(between(Some("cut-off"), Some("power-off")), Some(Switch::PowerOff));
        assert_eq!(between(Some("power-off"), Some("cut-off")), None);
        assert_eq!(between(None, Some("on fire")), None);
        assert_eq!(switch(None, &with(Some("power-off"))), Some(Switch::PowerOff), "seen for the first time");
    }
}
