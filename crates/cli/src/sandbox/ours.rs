//! Whether a kubeconfig is one of a sandbox, and of which.
//!
//! `kubectl config set-context` and its like write the whole file anew: comments go, and fields change places. What stays is the authority of
//! each cluster, and that says whose it is. A file in which anything belongs to another cluster is never ours: its user would
//! lose the access with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// First line of the kubeconfigs that a sandbox writes.
pub const MARK: &str = "# written by evac sandbox; removed when the sandbox stops\n";
/// The name in the certificate with which every sandbox signs.
const AUTHORITY: &[u8] = b"evac sandbox authority";
/// The only user of a sandbox.
const USER: &str = "evac-sandbox";

/// Whether nothing is lost with this file but the access to a sandbox.
pub fn is_of_a_sandbox(text: &str) -> bool {
    match authorities(text) {
        Some(all) => all.iter().all(|authority| is_ours(authority)),
        // What only begins as ours was cut off while it was written.
        None => text.starts_with(MARK) && !text.contains("contexts:"),
    }
}

/// Whether this is the file of the sandbox that wrote `written`, even if it was changed since.
pub fn is_of_this(text: &str, written: &str) -> bool {
    match (authorities(text), authorities(written)) {
        (Some(found), Some(own)) => found == own,
        _ => false,
    }
}

/// Whom each cluster in the file trusts. None if it cannot be read, names no cluster, or knows users of something else.
fn authorities(text: &str) -> Option<Vec<String>> {
    let file: Value = serde_saphyr::from_str(text).ok()?;
    let list = |field: &str| file[field].as_array().map(Vec::as_slice).unwrap_or_default();
    if list("clusters").is_empty() || list("users").iter().any(|user| user["name"] != USER) {
        return None;
    }
    let authority = |cluster: &Value| {
        cluster["cluster"]["certificate-authority-data"].as_str().unwrap_or_default().to_owned()
    };
    Some(list("clusters").iter().map(authority).collect())
}

fn is_ours(authority: &str) -> bool {
    let Ok(pem) = STANDARD.decode(authority) else { return false };
    let pem = String::from_utf8_lossy(&pem).into_owned();
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(body).is_ok_and(|der| der.windows(AUTHORITY.len()).any(|part| part == AUTHORITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kubeconfig as kubectl writes it: in the order of names, without comments.
    fn rewritten(authority: &str, more_clusters: &str, more_users: &str) -> String {
        format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {authority}\n    server: https://127.0.0.1:6443\n  name: evac-sandbox\n\
             {more_clusters}contexts:\n- context:\n    cluster: evac-sandbox\n    namespace: shop\n    user: evac-sandbox\n  name: evac-sandbox\n\
             current-context: evac-sandbox\nkind: Config\nusers:\n- name: evac-sandbox\n  user:\n    token: x\n{more_users}"
        )
    }

    fn certificate(name: &str) -> String {
        let der = [b"\x30\x82", name.as_bytes(), b"\x00"].concat();
        let pem =
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der));
        STANDARD.encode(pem)
    }

    fn ours() -> String {
        certificate("CN=evac sandbox authority, 1")
    }

    #[test]
    fn a_kubeconfig_that_kubectl_wrote_anew_is_still_ours() {
        assert!(is_of_a_sandbox(&rewritten(&ours(), "", "")));
        assert!(is_of_a_sandbox(&format!("{MARK}{}", rewritten(&ours(), "", ""))));
    }

    #[tokio::test]
    async fn what_a_sandbox_really_writes_is_known_by_its_authority() {
        use evac_apiserver::front::Front;
        use evac_apiserver::server::{Api, Settings};
        let _ = rustls::crypto::ring::default_provider().install_default();
        let api = Api::new(evac_clock::Clock::real(), Settings::default());
        let front = Front::open(api, 0).await.unwrap();
        assert!(is_of_a_sandbox(&front.kubeconfig));
        assert!(is_of_this(&format!("{MARK}{}", front.kubeconfig), &front.kubeconfig));
        front.close().await;
    }

    #[test]
    fn nothing_of_another_cluster_is_ours_whatever_it_is_called() {
        assert!(!is_of_a_sandbox(&rewritten(&certificate("CN=kubernetes"), "", "")), "only called so");
        assert!(!is_of_a_sandbox(&rewritten("", "", "")), "trusted by the system");
        let both = "- cluster:\n    server: https://production:6443\n  name: production\n";
        assert!(!is_of_a_sandbox(&rewritten(&ours(), both, "")), "both in one file");
        assert!(
            !is_of_a_sandbox(&format!("{MARK}{}", rewritten(&ours(), both, ""))),
            "whatever its first line says"
        );
        let kim = "- name: kim\n  user:\n    token: y\n";
        assert!(!is_of_a_sandbox(&rewritten(&ours(), "", kim)), "the key of a user");
        assert!(!is_of_a_sandbox("apiVersion: v1\nkind: Config\nclusters: null\n"));
        assert!(!is_of_a_sandbox("a shopping list"));
        assert!(!is_of_a_sandbox(""));
    }

    #[test]
    fn one_that_was_cut_off_while_it_was_written_is_ours() {
        assert!(is_of_a_sandbox(MARK));
        assert!(is_of_a_sandbox(&format!("{MARK}apiVersion: v1\nkind: Con")));
    }

    #[test]
    fn a_sandbox_removes_its_own_and_not_that_of_its_successor() {
        let (own, next) =
            (rewritten(&ours(), "", ""), rewritten(&certificate("evac sandbox authority, 2"), "", ""));
        assert!(is_of_this(&own.replace("namespace: shop", "namespace: other"), &own));
        assert!(!is_of_this(&next, &own));
        let both = "- cluster:\n    server: https://production:6443\n  name: production\n";
        assert!(!is_of_this(&rewritten(&ours(), both, ""), &own));
    }
}
