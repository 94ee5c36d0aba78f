//! Jobs and CronJobs.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Errors;
use crate::kinds::fields::{self, Unsupported};
use crate::kinds::meta;
use crate::kinds::pod::{default_template, validate_label_selector, validate_template};
use crate::kinds::read::{as_map, int, is_set, obj_mut, semantic_eq, set_default, text, text_at, truth};
use crate::kinds::strategy::Strategy;
use crate::selector::{label_selector, selects};
use crate::status::FieldError;

pub(in crate::kinds) const JOB: Strategy = Strategy {
    default: |object| {
        default_job_spec(obj_mut(object, "spec"));
        let labels = object.pointer("/spec/template/metadata/labels").cloned();
        let has_own =
            object.pointer("/metadata/labels").and_then(Value::as_object).is_some_and(|l| !l.is_empty());
        if let Some(labels) = labels.filter(|l| !has_own && l.as_object().is_some_and(|l| !l.is_empty())) {
            obj_mut(object, "metadata").insert("labels".into(), labels);
        }
    },
    prepare_create: generate_selector,
    validate: |object, errors| {
        let none = Value::Null;
        let spec = object.get("spec").unwrap_or(&none);
        job_spec(spec, "spec", errors);
        selector_of_job(spec, errors);
        generated_selector(object, errors);
    },
    validate_update: |old, new, _, errors| job_update(old, new, errors),
    fields: fields::JOB,
    unsupported: Unsupported::Label,
    ..Strategy::SPEC_AND_STATUS
};

pub(in crate::kinds) const CRON_JOB: Strategy = Strategy {
    default: |object| {
        let spec = obj_mut(object, "spec");
        set_default(spec, "concurrencyPolicy", "Allow");
        set_default(spec, "suspend", false);
        set_default(spec, "successfulJobsHistoryLimit", 3);
        set_default(spec, "failedJobsHistoryLimit", 1);
        let template = spec.entry("jobTemplate").or_insert_with(|| json!({}));
        let job = obj_mut(template, "spec");
        default_template(job.entry("template").or_insert_with(|| json!({})));
    },
    validate: |object, errors| {
        cron_job(object, None, errors);
        if meta::name_of(object).len() > 52 {
            errors.push(FieldError::invalid(
                "metadata.name",
                meta::name_of(object),
                "must be no more than 52 characters",
            ));
        }
    },
    validate_update: |old, new, _, errors| cron_job(new, Some(old), errors),
    ..Strategy::SPEC_AND_STATUS
};

fn default_job_spec(spec: &mut Map<String, Value>) {
    default_template(spec.entry("template").or_insert_with(|| json!({})));
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".into(), json!(1));
    }
    set_default(spec, "parallelism", 1);
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    set_default(spec, "backoffLimit", limit);
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    let replacement = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set_default(spec, "podReplacementPolicy", replacement);
    set_default(spec, "manualSelector", false);
}

const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Pods of a job are told apart by its uid, unless the user brings a selector.
fn generate_selector(object: &mut Value, _: Timestamp) {
    if object.pointer("/spec/manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let (name, uid) = (meta::name_of(object).to_owned(), text_at(object, "/metadata/uid").to_owned());
    // Labels that the job has from its template follow the template.
    let of_template = object.pointer("/spec/template/metadata/labels");
    let shared = of_template.is_some() && of_template == object.pointer("/metadata/labels");
    let spec = obj_mut(object, "spec");
    let template = spec.entry("template").or_insert_with(|| json!({}));
    let metadata = obj_mut(template, "metadata");
    let labels = as_map(metadata.entry("labels").or_insert_with(|| json!({})));
    for (key, value) in NAME_LABELS.iter().map(|k| (k, &name)).chain(UID_LABELS.iter().map(|k| (k, &uid))) {
        labels.entry((*key).to_owned()).or_insert_with(|| json!(value));
    }
    let labels = labels.clone();
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    obj_mut(selector, "matchLabels").entry(UID_LABELS[1]).or_insert_with(|| json!(uid));
    if shared {
        obj_mut(object, "metadata").insert("labels".into(), Value::Object(labels));
    }
}

fn selector_of_job(spec: &Value, errors: &mut Errors) {
    let selector = spec.get("selector").filter(|s| s.is_object());
    if selector.is_none() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    validate_label_selector(selector, "spec.selector", errors);
    let labels = spec.pointer("/template/metadata/labels");
    if let Ok(parsed) = label_selector(selector)
        && !selects(&parsed, labels.and_then(Value::as_object))
    {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels.cloned().unwrap_or_default(),
            "`selector` does not match template `labels`",
        ));
    }
}

/// Labels that the server makes may not be given other values.
fn generated_selector(object: &Value, errors: &mut Errors) {
    if object.pointer("/spec/manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let labels = object.pointer("/spec/template/metadata/labels");
    let expect = [(UID_LABELS, text_at(object, "/metadata/uid")), (NAME_LABELS, meta::name_of(object))];
    for (keys, wanted) in expect {
        for key in keys {
            let value = labels.and_then(|l| l.get(key)).and_then(Value::as_str).unwrap_or("");
            if value != wanted {
                errors.push(FieldError::invalid(
                    "spec.template.metadata.labels",
                    labels.cloned().unwrap_or_default(),
                    format!("must be '{wanted}'"),
                ));
            }
        }
    }
}

fn job_spec(spec: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        if let Some(n) = int(spec, field).filter(|n| *n < 0) {
            errors.push(FieldError::invalid(at(field), n, meta::NON_NEGATIVE));
        }
    }
    match text(spec, "completionMode") {
        "" | "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(n) = int(spec, field) {
                    errors.push(FieldError::invalid(at(field), n, "requires indexed completion mode"));
                }
            }
        }
        "Indexed" => {
            if !is_set(spec, "completions") {
                errors.push(FieldError::required(at("completions"), "when completion mode is Indexed"));
            }
            if let Some(n) = int(spec, "parallelism").filter(|n| *n > 100_000) {
                errors.push(FieldError::invalid(
                    at("parallelism"),
                    n,
                    "must be less than or equal to 100000 when completion mode is Indexed",
                ));
            }
        }
        other => {
            errors.push(FieldError::not_supported(at("completionMode"), other, &["NonIndexed", "Indexed"]));
        }
    }
    let none = Value::Null;
    let template = spec.get("template").unwrap_or(&none);
    validate_template(template, &at("template"), errors);
    let policy = text_at(template, "/spec/restartPolicy");
    match policy {
        "OnFailure" | "Never" => {
            if is_set(spec, "podFailurePolicy") && policy != "Never" {
                errors.push(FieldError::invalid(
                    at("template.spec.restartPolicy"),
                    policy,
                    "only \"Never\" is supported when podFailurePolicy is specified",
                ));
            }
        }
        "Always" | "" => errors.push(FieldError::required(
            at("template.spec.restartPolicy"),
            "valid values: \"OnFailure\", \"Never\"",
        )),
        other => errors.push(FieldError::not_supported(
            at("template.spec.restartPolicy"),
            other,
            &["OnFailure", "Never"],
        )),
    }
}

fn job_update(old: &Value, new: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let (before, spec) = (old.get("spec").unwrap_or(&none), new.get("spec").unwrap_or(&none));
    job_spec(spec, "spec", errors);
    selector_of_job(spec, errors);
    if text(spec, "completionMode") != "Indexed" {
        meta::immutable(old, new, "/spec/completions", "spec.completions", errors);
    } else if spec.get("completions") != before.get("completions")
        && spec.get("completions") != spec.get("parallelism")
    {
        errors.push(FieldError::invalid(
            "spec.completions",
            spec.get("completions").cloned().unwrap_or_default(),
            "can only be modified in tandem with spec.parallelism",
        ));
    }
    meta::immutable(old, new, "/spec/selector", "spec.selector", errors);
    template_update(before, spec, errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        meta::immutable(old, new, &format!("/spec/{field}"), &format!("spec.{field}"), errors);
    }
}

/// A suspended job that never started may still change where its pods go.
fn template_update(before: &Value, spec: &Value, errors: &mut Errors) {
    let now = spec.get("template");
    let mut allowed = before.get("template").cloned().unwrap_or_default();
    if truth(before, "suspend") {
        let copy = |pointer: &str, parent: &str, key: &str, allowed: &mut Value| {
            let value = now.and_then(|t| t.pointer(pointer)).cloned();
            if let Some(parent) = allowed.pointer_mut(parent).and_then(Value::as_object_mut) {
                match value {
                    Some(value) => parent.insert(key.to_owned(), value),
                    None => parent.remove(key),
                };
            }
        };
        for key in ["nodeSelector", "tolerations", "schedulingGates", "affinity"] {
            copy(&format!("/spec/{key}"), "/spec", key, &mut allowed);
        }
        for key in ["labels", "annotations"] {
            copy(&format!("/metadata/{key}"), "/metadata", key, &mut allowed);
        }
    }
    if !semantic_eq(Some(&allowed), now) {
        errors.push(FieldError::invalid("spec.template", now.cloned().unwrap_or_default(), meta::IMMUTABLE));
    }
}

fn cron_job(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else {
        if let Some(complaint) = schedule_complaint(schedule) {
            errors.push(FieldError::invalid("spec.schedule", schedule, complaint));
        }
        let had_zone = old.is_some_and(|o| text_at(o, "/spec/schedule").contains("TZ"));
        if schedule.contains("TZ") && !had_zone {
            errors.push(FieldError::invalid(
                "spec.schedule",
                schedule,
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            ));
        }
    }
    meta::non_negative(spec, "/startingDeadlineSeconds", "spec.startingDeadlineSeconds", errors);
    match text(spec, "concurrencyPolicy") {
        "Allow" | "Forbid" | "Replace" => {}
        "" => errors.push(FieldError::required("spec.concurrencyPolicy", "")),
        other => errors.push(FieldError::not_supported(
            "spec.concurrencyPolicy",
            other,
            &["Allow", "Forbid", "Replace"],
        )),
    }
    let job = spec.pointer("/jobTemplate/spec").unwrap_or(&none);
    job_spec(job, "spec.jobTemplate.spec", errors);
    if let Some(selector) = job.get("selector").filter(|s| s.is_object()) {
        errors.push(FieldError::invalid(
            "spec.jobTemplate.spec.selector",
            selector.clone(),
            "`selector` will be auto-generated",
        ));
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        super::non_negative(spec, field, errors);
    }
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const WORDS: [&str; 7] = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"];

/// Five fields of numbers, ranges, steps and names, or one of the `@` words.
fn schedule_complaint(schedule: &str) -> Option<String> {
    let text = schedule.split_once(' ').filter(|(z, _)| z.contains("TZ=")).map_or(schedule, |(_, rest)| rest);
    if let Some(word) = text.strip_prefix('@') {
        let known = WORDS.contains(&word) || word.starts_with("every ");
        return (!known).then(|| format!("unrecognized descriptor: {text}"));
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != 5 {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    let names: [&[&str]; 5] = [&[], &[], &[], &MONTHS, &DAYS];
    fields.iter().zip(bounds).zip(names).find_map(|((field, (low, high)), names)| {
        field.split(',').find_map(|part| part_complaint(part, low, high, names))
    })
}

fn part_complaint(part: &str, low: u32, high: u32, names: &[&str]) -> Option<String> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (part, None),
    };
    if step.is_some_and(|s| s.parse::<u32>().is_err()) {
        return Some(format!("failed to parse int from {}: invalid syntax", step.unwrap_or("")));
    }
    if step == Some("0") {
        return Some(format!("step of range should be a positive number: {part}"));
    }
    if range == "*" || range == "?" {
        return None;
    }
    let number = |text: &str| -> Result<u32, String> {
        if let Some(at) = names.iter().position(|n| text.eq_ignore_ascii_case(n)) {
            return Ok(at as u32 + u32::from(names.len() == 12));
        }
        text.parse::<u32>().map_err(|_| {
            format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
        })
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = match (number(first), number(last)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(e), _) | (_, Err(e)) => return Some(e),
    };
    if first < low {
        return Some(format!("beginning of range ({first}) below minimum ({low}): {part}"));
    }
    if last > high {
        return Some(format!("end of range ({last}) above maximum ({high}): {part}"));
    }
    if first > last {
        return Some(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
    }
    None
}
