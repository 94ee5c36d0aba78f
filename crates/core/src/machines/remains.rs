//! What giving a node back could not undo about its guests: the object, what is left on it, and what to do.

use crate::cluster::fact::Key;

/// One thing that is left, with the reason as the server or the client said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remains {
    /// A guest is still marked to be moved away from the node.
    Mark {
        /// Which instance.
        instance: Key,
        /// The node in `status.evacuationNodeName`.
        node: String,
        /// What came back when the mark was to be taken off.
        why: String,
    },
    /// A migration away from the node goes on.
    Migration {
        /// Which migration.
        migration: Key,
        /// What came back when it was to be deleted.
        why: String,
    },
    /// What is left, if anything, could not be found out.
    Unread {
        /// What was looked for.
        what: &'static str,
        /// What came back.
        why: String,
    },
}

impl Remains {
    /// What it is about, for the beginning of a sentence.
    pub fn object(&self) -> String {
        match self {
            Self::Mark { instance, .. } => format!("virtual machine {instance}"),
            Self::Migration { migration, .. } => format!("migration {migration}"),
            Self::Unread { .. } => "cluster".to_owned(),
        }
    }

    /// What is left and why.
    pub fn message(&self) -> String {
        match self {
            Self::Mark { node, why, .. } => {
                format!("is still marked to leave node {node} (status.evacuationNodeName), because {why}")
            }
            Self::Migration { why, .. } => format!("could not be aborted: {why}"),
            Self::Unread { what, why } => format!("{what} could not be looked for: {why}"),
        }
    }

    /// What a person can do, a command if there is one.
    pub fn fix(&self) -> String {
        match self {
            Self::Mark { instance, .. } => format!(
                "when virt-api answers, `virtctl evacuate-cancel vmi {} -n {}` clears the mark; until then it is moved away from the node, which \
                 clears it, too",
                instance.name, instance.namespace
            ),
            Self::Migration { migration, .. } => {
                format!("kubectl delete vmim {} -n {}", migration.name, migration.namespace)
            }
            Self::Unread { .. } => {
                "ask for the right to list virtualmachineinstances and virtualmachineinstancemigrations, or look at the API server".to_owned()
            }
        }
    }

    /// All of it in one line.
    pub fn sentence(&self) -> String {
        format!("{} {}. To do: {}", self.object(), self.message(), self.fix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_with_its_object_and_what_to_do() {
        let mark = Remains::Mark {
            instance: Key::new("shop", "db"),
            node: "node-1".into(),
            why: "virt-api answered 500".into(),
        };
        assert_eq!(
            mark.sentence(),
            "virtual machine shop/db is still marked to leave node node-1 (status.evacuationNodeName), because virt-api answered 500. To do: \
             when virt-api answers, `virtctl evacuate-cancel vmi db -n shop` clears the mark; until then it is moved away from the node, which \
             clears it, too"
        );
        let migration = Remains::Migration { migration: Key::new("shop", "m"), why: "forbidden".into() };
        assert!(
            migration
                .sentence()
                .ends_with("could not be aborted: forbidden. To do: kubectl delete vmim m -n shop")
        );
    }
}
