//! Who is asking.

use serde_json::{Value, json};

/// An authenticated caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
}

pub const MASTERS: &str = "system:masters";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

impl Identity {
    /// The owner of the server, who may do everything.
    pub fn admin() -> Self {
        Self {
            name: "kubernetes-admin".into(),
            uid: String::new(),
            groups: vec![MASTERS.into(), AUTHENTICATED.into()],
        }
    }

    /// Somebody who showed no credentials.
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), uid: String::new(), groups: vec![UNAUTHENTICATED.into()] }
    }

    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|g| g == MASTERS)
    }

    /// Service accounts belong to these groups by definition.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            uid: String::new(),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
                AUTHENTICATED.into(),
            ],
        }
    }

    /// As `authentication.k8s.io/v1 UserInfo`.
    pub fn user_info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        info
    }
}
