//! What this server refuses because it could only do half of it: 501 with a sentence.

use serde_json::Value;

use crate::kinds::Kind;
use crate::status::ApiError;

/// Objects that a cluster enforces and this server does not. Keeping one would promise what is not done;
/// reading the empty lists is harmless, and clients do it.
const NOT_ENFORCED: &[(&str, &str)] = &[
    ("", "limitranges"),
    ("", "resourcequotas"),
    // Nothing here allocates devices; a scheduler must be able to see that there are none.
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "devicetaintrules"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("resource.k8s.io", "resourceslices"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
];

/// Refuses kinds that would be kept but not enforced.
pub fn must_be_enforced(kind: &Kind) -> Result<(), ApiError> {
    if NOT_ENFORCED.contains(&(kind.group.as_ref(), kind.plural.as_ref())) {
        return Err(outside(&kind.kind, "it would be kept but not enforced"));
    }
    Ok(())
}

/// Refuses objects that ask for something this server does not do.
pub fn must_be_served(kind: &Kind, object: &Value) -> Result<(), ApiError> {
    match (kind.group.as_ref(), kind.kind.as_ref()) {
        ("apiextensions.k8s.io", "CustomResourceDefinition")
            if object["spec"]["conversion"]["strategy"] == "Webhook" =>
        {
            Err(outside("conversion by webhook", "versions of a custom resource must have one schema"))
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            match super::crds::missing_for_rules(object) {
                Some(what) => Err(outside("a validation rule", &format!("it needs {what}"))),
                None => Ok(()),
            }
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => {
            let missing = crate::kinds::missing_for_conditions(object);
            if let Some(what) = missing {
                return Err(outside("a match condition", &format!("it needs {what}")));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn outside(what: &str, why: &str) -> ApiError {
    ApiError::not_implemented(format!("{what} is outside the profile of this server: {why}"))
}
