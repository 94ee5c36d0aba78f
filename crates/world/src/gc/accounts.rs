//! Each namespace has a service account named `default`.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::actor::{Out, View};
use crate::effects::Write;
use crate::kinds::Kind;
use crate::objects::{Key, deleting};

pub fn sync(view: View<'_>, key: &Key, out: &mut Out) {
    let Some(namespace) = view.mirror.namespaces.get(key) else { return };
    let account = Key::new(key.name.clone(), "default");
    if deleting(&namespace.metadata) || view.mirror.accounts.get(&account).is_some() {
        return;
    }
    let body = ServiceAccount {
        metadata: ObjectMeta {
            name: Some(account.name.clone()),
            namespace: Some(account.namespace.clone()),
            ..Default::default()
        },
        ..Default::default()
    };
    out.write(Write::create(Kind::ServiceAccount, account, &body));
}
