//! The query parameters of a request, parsed once and refused as kube-apiserver refuses them.

use crate::status::ApiError;

/// How unknown and duplicate fields in a body are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// What a given resource version means for a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    Unset,
    Exact,
    NotOlderThan,
}

/// All parameters this server knows, of any verb.
#[derive(Debug, Clone)]
pub struct Query {
    pub label_selector: String,
    pub field_selector: String,
    pub watch: bool,
    pub allow_bookmarks: bool,
    /// `None` when it was not given.
    pub send_initial_events: Option<bool>,
    pub resource_version: String,
    pub version_match: VersionMatch,
    pub limit: Option<usize>,
    pub continue_token: String,
    pub timeout_seconds: Option<u64>,
    pub dry_run: bool,
    pub field_manager: Option<String>,
    pub field_validation: FieldValidation,
    pub force: Option<bool>,
    pub grace_period_seconds: Option<i64>,
    pub propagation_policy: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub include_object: Option<String>,
}

impl Query {
    pub fn parse(text: Option<&str>) -> Result<Self, ApiError> {
        let mut query = Self {
            label_selector: String::new(),
            field_selector: String::new(),
            watch: false,
            allow_bookmarks: false,
            send_initial_events: None,
            resource_version: String::new(),
            version_match: VersionMatch::Unset,
            limit: None,
            continue_token: String::new(),
            timeout_seconds: None,
            dry_run: false,
            field_manager: None,
            field_validation: FieldValidation::Warn,
            force: None,
            grace_period_seconds: None,
            propagation_policy: None,
            orphan_dependents: None,
            include_object: None,
        };
        for (name, value) in form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
            query.take(&name, &value)?;
        }
        Ok(query)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), ApiError> {
        match name {
            "labelSelector" => value.clone_into(&mut self.label_selector),
            "fieldSelector" => value.clone_into(&mut self.field_selector),
            "watch" => self.watch = truth(value),
            "allowWatchBookmarks" => self.allow_bookmarks = truth(value),
            "sendInitialEvents" => self.send_initial_events = Some(truth(value)),
            "resourceVersion" => value.clone_into(&mut self.resource_version),
            "resourceVersionMatch" => {
                self.version_match = match value {
                    "" => VersionMatch::Unset,
                    "Exact" => VersionMatch::Exact,
                    "NotOlderThan" => VersionMatch::NotOlderThan,
                    other => {
                        return Err(invalid_list_option(&format!(
                            "resourceVersionMatch: Unsupported value: \"{other}\": supported values: \"Exact\", \
                             \"NotOlderThan\""
                        )));
                    }
                }
            }
            "limit" => self.limit = usize::try_from(number(name, value)?).ok().filter(|limit| *limit > 0),
            "continue" => value.clone_into(&mut self.continue_token),
            "timeoutSeconds" => self.timeout_seconds = u64::try_from(number(name, value)?).ok(),
            "dryRun" if !value.is_empty() => {
                if value != "All" {
                    return Err(ApiError::new(
                        422,
                        "Invalid",
                        format!(
                            " \"\" is invalid: dryRun: Unsupported value: \"{value}\": supported values: \"All\""
                        ),
                    ));
                }
                self.dry_run = true;
            }
            "fieldManager" => self.field_manager = Some(value.to_owned()).filter(|v| !v.is_empty()),
            "fieldValidation" => {
                self.field_validation = match value {
                    "Ignore" => FieldValidation::Ignore,
                    "" | "Warn" => FieldValidation::Warn,
                    "Strict" => FieldValidation::Strict,
                    other => {
                        return Err(ApiError::new(
                            422,
                            "Invalid",
                            format!(
                                " \"\" is invalid: fieldValidation: Unsupported value: \"{other}\": supported \
                                 values: \"Ignore\", \"Strict\", \"Warn\""
                            ),
                        ));
                    }
                }
            }
            "force" => self.force = Some(truth(value)),
            "gracePeriodSeconds" => self.grace_period_seconds = Some(number(name, value)?),
            "propagationPolicy" => {
                self.propagation_policy = Some(value.to_owned()).filter(|v| !v.is_empty());
            }
            "orphanDependents" => self.orphan_dependents = Some(truth(value)),
            "includeObject" => self.include_object = Some(value.to_owned()).filter(|v| !v.is_empty()),
            _ => {}
        }
        Ok(())
    }
}

/// A refusal of list or watch options.
pub fn invalid_list_option(message: &str) -> ApiError {
    ApiError::new(422, "Invalid", format!("ListOptions.meta.k8s.io \"\" is invalid: {message}"))
}

/// Kubernetes takes an empty value and anything but a clear no for a yes.
fn truth(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "0" | "false")
}

fn number(name: &str, value: &str) -> Result<i64, ApiError> {
    if value.is_empty() {
        return Ok(0);
    }
    value.parse().map_err(|_| {
        ApiError::bad_request(format!("strconv.ParseInt: parsing \"{value}\" of {name}: invalid syntax"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_unknown_ones_ignored() {
        let query =
            Query::parse(Some("labelSelector=app%3Dweb&watch=1&limit=500&pretty=true&dryRun=All")).unwrap();
        assert_eq!(query.label_selector, "app=web");
        assert!(query.watch && query.dry_run);
        assert_eq!(query.limit, Some(500));
    }

    #[test]
    fn a_dry_run_other_than_all_is_refused() {
        assert_eq!(Query::parse(Some("dryRun=Some")).unwrap_err().code, 422);
    }

    #[test]
    fn a_limit_of_zero_is_no_limit() {
        assert_eq!(Query::parse(Some("limit=0")).unwrap().limit, None);
    }
}
