//! Each namespace has a service account named `default`, and a ConfigMap with the certificate of the server.

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::actor::{Out, View};
use crate::effects::{Verb, Write, as_value};
use crate::kinds::{CONFIG_MAPS, Kind};
use crate::objects::{Key, deleting};

pub fn sync(view: View<'_>, root_ca: &str, key: &Key, out: &mut Out) {
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
    out.write(certificate(&key.name, root_ca));
}

/// Made together with the account. ConfigMaps are not watched, so one that is there already is left as it is.
fn certificate(namespace: &str, root_ca: &str) -> Write {
    let key = Key::new(namespace, "kube-root-ca.crt");
    let body = ConfigMap {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            ..Default::default()
        },
        data: Some([("ca.crt".to_owned(), root_ca.to_owned())].into()),
        ..Default::default()
    };
    let verb = Verb::Create(as_value(&body));
    Write { resource: CONFIG_MAPS, key, subresource: "", verb, optional: true }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::actor::Answers;
    use crate::build::{at, meta};
    use crate::kinds::Object;
    use crate::mirror::Mirror;

    #[test]
    fn a_new_namespace_gets_its_account_and_the_certificate_once() {
        let mut mirror = Mirror::default();
        let namespace =
            k8s_openapi::api::core::v1::Namespace { metadata: meta("", "team"), ..Default::default() };
        mirror.put(Object::Namespace(Arc::new(namespace)));
        let answers = Answers::new();
        let look = |mirror: &Mirror| {
            let mut out = Out::default();
            let view = View { mirror, now: at(0), answers: &answers };
            sync(view, "PEM", &Key::cluster("team"), &mut out);
            out.writes
        };
        let writes = look(&mirror);
        let kinds: Vec<_> = writes.iter().map(|w| w.resource.kind.to_string()).collect();
        assert_eq!(kinds, ["ServiceAccount", "ConfigMap"]);
        assert!(matches!(&writes[1].verb, Verb::Create(body) if body["data"]["ca.crt"] == "PEM"));
        let account = ServiceAccount { metadata: meta("team", "default"), ..Default::default() };
        mirror.put(Object::ServiceAccount(Arc::new(account)));
        assert!(look(&mirror).is_empty());
    }
}
