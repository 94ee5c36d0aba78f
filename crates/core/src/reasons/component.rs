//! Which part of a cluster is behind an answer that did not come, or that no Kubernetes API server gives.

use std::fmt;

use serde::Serialize;

/// Where an answer came from that says nothing of what was asked.
pub const SERVER: &str = "the API server or a proxy before it";
/// The part of KubeVirt that answers its webhooks.
pub const VIRT_API: &str = "virt-api";

/// An admission webhook that the API server could not ask.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SilentHook {
    /// Its name.
    pub webhook: String,
    /// Who should have answered.
    pub component: String,
    /// Why it did not, in the words of the API server.
    pub why: String,
}

impl SilentHook {
    /// Reads `failed calling webhook "name": failed to call webhook: Post
    /// "https://service.namespace.svc:443/…": why`.
    pub fn in_message(message: &str) -> Option<Self> {
        let (_, rest) = message.split_once("failed calling webhook \"")?;
        let (webhook, rest) = rest.split_once('"')?;
        let rest = rest.trim_start_matches(':').trim();
        let component = match service(rest) {
            Some((name, _)) if name == VIRT_API => VIRT_API.to_owned(),
            Some((name, namespace)) => format!("service {namespace}/{name}"),
            // Those of KubeVirt are all answered by virt-api.
            None if webhook.ends_with("kubevirt.io") => VIRT_API.to_owned(),
            None => format!("what stands behind {webhook}"),
        };
        // The address is of no use to people; what follows it is.
        let why = rest.rsplit_once("\": ").map_or(rest, |(_, why)| why);
        let why = why.strip_prefix("failed to call webhook: ").unwrap_or(why);
        Some(Self { webhook: webhook.to_owned(), component, why: why.to_owned() })
    }

    /// What can be done that it answers, or is not asked.
    pub fn fix(&self) -> String {
        if self.component == VIRT_API {
            return "look at the pods of virt-api (kubectl get pods -A -l kubevirt.io=virt-api); where KubeVirt \
                    was removed, delete the webhook configurations that it left"
                .to_owned();
        }
        format!(
            "look at {}, or delete the configuration of webhook {} if it is not needed",
            self.component, self.webhook
        )
    }

    pub(super) fn example(webhook: &str) -> Self {
        let (component, why) = (VIRT_API.to_owned(), "connection refused".to_owned());
        Self { webhook: webhook.to_owned(), component, why }
    }
}

impl fmt::Display for SilentHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { webhook, component, why } = self;
        write!(f, "{component} does not answer admission webhook {webhook} ({why})")
    }
}

/// The service in the address of a webhook: its name and namespace.
fn service(text: &str) -> Option<(&str, &str)> {
    let (_, address) = text.split_once("https://")?;
    let host = address.split([':', '/', '"', '?']).next()?;
    let mut parts = host.split('.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), Some(namespace), Some("svc")) => Some((name, namespace)),
        _ => None,
    }
}

/// The title of a web page, or nothing for one without; `None` if this is no web page.
pub fn web_page(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body.get(..body.len().min(4096)).unwrap_or(body));
    let lower = text.trim_start().to_ascii_lowercase();
    if !lower.starts_with("<!doctype html") && !lower.starts_with("<html") {
        return None;
    }
    let start = lower.find("<title>").map(|at| at + "<title>".len());
    let title = start.and_then(|start| {
        let end = lower.get(start..)?.find("</title>")?;
        text.trim_start().get(start..start + end)
    });
    Some(title.unwrap_or_default().trim().to_owned())
}

/// How an answer begins that is a web page.
const PAGE: &str = "a web page";

/// What is said in place of a web page.
pub fn page_words(title: &str) -> String {
    if title.is_empty() { PAGE.to_owned() } else { format!("{PAGE}, \"{title}\"") }
}

/// Whether an answer is one that no API server gives to a request like ours: it does not take or give JSON,
/// or it is a web page.
pub fn is_strange(status: u16, message: &str) -> bool {
    matches!(status, 406 | 415) || message.starts_with(PAGE)
}

/// The sentence about such an answer.
pub fn strange_words(component: &str, status: u16, message: &str) -> String {
    let what = match status {
        _ if message.starts_with(PAGE) => format!("{message}, instead of Kubernetes' JSON"),
        406 => format!("that it cannot give JSON ({message})"),
        _ => format!("that it does not take JSON ({message})"),
    };
    format!("{component} answered {status}: {what}")
}

/// What can be done about such an answer.
pub fn strange_fix(component: &str) -> String {
    if component == VIRT_API {
        return "look at virt-api and at what stands between it and the API server".to_owned();
    }
    "check that the kubeconfig names the API server itself, and what a proxy or login page before it does to \
     requests"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(message: &str) -> SilentHook {
        SilentHook::in_message(message).unwrap()
    }

    #[test]
    fn a_webhook_that_could_not_be_asked_names_who_should_have_answered() {
        let refused = hook(
            "Internal error occurred: failed calling webhook \"migration-create-validator.kubevirt.io\": failed to call webhook: Post \
             \"https://virt-api.kubevirt.svc:443/migration-validate-create?timeout=10s\": dial tcp 10.0.0.1:443: connect: connection refused",
        );
        assert_eq!(refused.webhook, "migration-create-validator.kubevirt.io");
        assert_eq!(refused.component, "virt-api");
        assert_eq!(refused.why, "dial tcp 10.0.0.1:443: connect: connection refused");
        let absent = hook(
            "Internal error occurred: failed calling webhook \"virt-launcher-eviction-interceptor.kubevirt.io\": failed to call webhook: \
             service \"virt-api\" not found",
        );
        assert_eq!(
            (absent.component.as_str(), absent.why.as_str()),
            ("virt-api", "service \"virt-api\" not found")
        );
        assert!(
            absent.fix().contains("virt-api") && absent.fix().contains("delete the webhook configurations")
        );
        let other = hook(
            "failed calling webhook \"policy.example.com\": failed to call webhook: Post \"https://guard.sec.svc:443/x\": EOF",
        );
        assert_eq!(other.component, "service sec/guard");
        assert!(SilentHook::in_message("admission webhook \"a\" denied the request: no").is_none());
    }

    #[test]
    fn a_web_page_is_known_by_its_beginning_and_shown_by_its_title() {
        let page = b"\n<!DOCTYPE html><html><head><title> Sign in </title></head>";
        assert_eq!(web_page(page).as_deref(), Some("Sign in"));
        assert_eq!(web_page(b"<html><body>502</body></html>").as_deref(), Some(""));
        assert_eq!(web_page(b"{\"kind\":\"Status\"}"), None);
        assert_eq!(web_page(b"404 page not found"), None, "so says an API server");
    }

    #[test]
    fn what_no_api_server_answers_is_said_in_one_sentence() {
        assert!(is_strange(406, "") && is_strange(415, "") && is_strange(200, &page_words("Sign in")));
        assert!(!is_strange(500, "etcd timed out"));
        assert_eq!(
            strange_words(SERVER, 200, &page_words("Sign in")),
            "the API server or a proxy before it answered 200: a web page, \"Sign in\", instead of Kubernetes' JSON"
        );
        assert_eq!(
            strange_words(VIRT_API, 406, "406: Not Acceptable"),
            "virt-api answered 406: that it cannot give JSON (406: Not Acceptable)"
        );
    }
}
