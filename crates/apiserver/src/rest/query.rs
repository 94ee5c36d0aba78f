//! The query parameters of a request, parsed once and refused as kube-apiserver refuses them.

use serde_json::json;

use crate::status::{About, ApiError, FieldError, FieldErrorKind};

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
    version_match_given: String,
    pub limit: Option<usize>,
    pub continue_token: String,
    pub timeout_seconds: Option<u64>,
    pub dry_run: bool,
    dry_run_given: Vec<String>,
    pub field_manager: Option<String>,
    pub field_validation: FieldValidation,
    field_validation_given: String,
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
            version_match_given: String::new(),
            limit: None,
            continue_token: String::new(),
            timeout_seconds: None,
            dry_run: false,
            dry_run_given: Vec::new(),
            field_manager: None,
            field_validation: FieldValidation::Warn,
            field_validation_given: String::new(),
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
                value.clone_into(&mut self.version_match_given);
                self.version_match = match value {
                    "Exact" => VersionMatch::Exact,
                    "NotOlderThan" => VersionMatch::NotOlderThan,
                    _ => VersionMatch::Unset,
                };
            }
            "limit" => self.limit = usize::try_from(number(value)?).ok().filter(|limit| *limit > 0),
            "continue" => value.clone_into(&mut self.continue_token),
            "timeoutSeconds" => self.timeout_seconds = u64::try_from(number(value)?).ok(),
            "dryRun" if !value.is_empty() => {
                self.dry_run_given.push(value.to_owned());
                self.dry_run = true;
            }
            "fieldManager" => self.field_manager = Some(value.to_owned()).filter(|v| !v.is_empty()),
            "fieldValidation" => {
                value.clone_into(&mut self.field_validation_given);
                self.field_validation = match value {
                    "Ignore" => FieldValidation::Ignore,
                    "Strict" => FieldValidation::Strict,
                    _ => FieldValidation::Warn,
                };
            }
            "force" => self.force = Some(truth(value)),
            "gracePeriodSeconds" => self.grace_period_seconds = Some(number(value)?),
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

/// The longest name of a field manager.
const MANAGER_LIMIT: usize = 128;

impl Query {
    /// Checks the options of a create, update or patch; `kind` is how the answer calls them.
    pub fn check_write(&self, kind: &str) -> Result<(), ApiError> {
        refuse(kind, &self.write_errors())
    }

    pub fn write_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(manager) = &self.field_manager {
            if manager.len() > MANAGER_LIMIT {
                errors.push(FieldError::too_long("fieldManager", MANAGER_LIMIT));
            }
            if let Some((at, bad)) = manager.chars().enumerate().find(|(_, c)| c.is_control()) {
                errors.push(FieldError::invalid(
                    "fieldManager",
                    manager.clone(),
                    format!("invalid character U+{:04X} (at position {at})", u32::from(bad)),
                ));
            }
        }
        errors.extend(dry_run_errors(&self.dry_run_given));
        if !matches!(self.field_validation_given.as_str(), "" | "Ignore" | "Strict" | "Warn") {
            errors.push(FieldError::not_supported(
                "fieldValidation",
                self.field_validation_given.clone(),
                &["", "Ignore", "Strict", "Warn"],
            ));
        }
        errors
    }

    pub fn dry_run_given(&self) -> &[String] {
        &self.dry_run_given
    }

    /// Checks the options of a list or a watch.
    pub fn check_read(&self, watch: bool) -> Result<(), ApiError> {
        let errors = if watch { self.watch_errors() } else { self.list_errors() };
        refuse("ListOptions", &errors)
    }

    fn list_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let given = self.version_match_given.as_str();
        let mut forbid = |field: &str, why: &str| errors.push(FieldError::forbidden(field, why));
        if !given.is_empty() {
            if self.resource_version.is_empty() {
                forbid(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !self.continue_token.is_empty() {
                forbid(MATCH, NOT_WITH_CONTINUE);
            }
            if given == "Exact" && self.resource_version == "0" {
                forbid(MATCH, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
        }
        if self.send_initial_events.is_some() {
            forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if !matches!(given, "" | "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(MATCH, given, &["Exact", "NotOlderThan", ""]));
        }
        errors
    }

    fn watch_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        // A watch from nowhere in particular counts as a streaming list.
        let plain = self.send_initial_events.is_none() && self.version_match_given.is_empty();
        let streaming = plain && matches!(self.resource_version.as_str(), "" | "0");
        let given = if streaming { "NotOlderThan" } else { self.version_match_given.as_str() };
        let mut forbid = |why: &str| errors.push(FieldError::forbidden(MATCH, why));
        if self.send_initial_events.is_some() && given != "NotOlderThan" {
            forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if given.is_empty() {
            return errors;
        }
        if self.send_initial_events.is_none() && !streaming {
            forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        if given != "NotOlderThan" {
            errors.push(FieldError::not_supported(MATCH, given, &["NotOlderThan"]));
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(MATCH, NOT_WITH_CONTINUE));
        }
        errors
    }
}

const MATCH: &str = "resourceVersionMatch";
const NOT_WITH_CONTINUE: &str = "resourceVersionMatch is forbidden when continue is provided";

/// Complaints about the values of `dryRun`.
pub fn dry_run_errors(given: &[String]) -> Option<FieldError> {
    given.iter().any(|value| value != "All").then(|| {
        let supported = "supported values: \"All\"";
        FieldError::new(FieldErrorKind::NotSupported, "dryRun", Some(json!(given)), supported)
    })
}

/// Refuses options with complaints about them.
pub fn refuse(kind: &str, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(About { group: "meta.k8s.io", kind, name: "" }, errors))
}

/// Kubernetes takes an empty value and anything but a clear no for a yes.
fn truth(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "0" | "false")
}

/// What Go says about a number that cannot be read.
pub fn unreadable(error: &std::num::ParseIntError) -> &'static str {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    if matches!(error.kind(), PosOverflow | NegOverflow) { "value out of range" } else { "invalid syntax" }
}

fn number(value: &str) -> Result<i64, ApiError> {
    if value.is_empty() {
        return Ok(0);
    }
    value.parse().map_err(|error| {
        let why = unreadable(&error);
        ApiError::bad_request(format!("strconv.ParseInt: parsing \"{value}\": {why}"))
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
        let query = Query::parse(Some("dryRun=Some")).unwrap();
        assert_eq!(query.check_write("CreateOptions").unwrap_err().code, 422);
    }

    #[test]
    fn a_limit_of_zero_is_no_limit() {
        assert_eq!(Query::parse(Some("limit=0")).unwrap().limit, None);
    }
}
