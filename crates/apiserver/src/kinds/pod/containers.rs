//! Checks on containers: names, images, ports, mounts, probes, resources.

use std::collections::{BTreeMap, BTreeSet};

use evac_apimachinery::validation;
use serde_json::Value;

use super::validate::{one_of, resource_requirements, unique};
use crate::kinds::meta::{self, NON_NEGATIVE};
use crate::kinds::read::{int, is_set, list, text};
use crate::status::{FieldError, FieldErrorKind};

type Errors = Vec<FieldError>;
/// The volumes of the pod that are well formed, by name.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

pub(super) fn regular(spec: &Value, volumes: &Volumes<'_>, path: &str, errors: &mut Errors) {
    let containers = list(spec, "containers");
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        let at = format!("{path}.containers[{i}]");
        common(container, volumes, &at, errors);
        unique(&mut seen, text(container, "name"), format!("{at}.name"), errors);
        hooks_and_probes(container, &at, errors);
    }
    let mut ports = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        host_ports(container, &format!("{path}.containers[{i}]"), &mut ports, errors);
    }
}

pub(super) fn init(spec: &Value, volumes: &Volumes<'_>, path: &str, errors: &mut Errors) {
    let mut seen: BTreeSet<&str> = list(spec, "containers").iter().map(|c| text(c, "name")).collect();
    for (i, container) in list(spec, "initContainers").iter().enumerate() {
        let at = format!("{path}.initContainers[{i}]");
        common(container, volumes, &at, errors);
        let restart = text(container, "restartPolicy");
        if !restart.is_empty() && !["Always", "OnFailure", "Never"].contains(&restart) {
            errors.push(FieldError::not_supported(format!("{at}.restartPolicy"), restart, &["Always"]));
        }
        unique(&mut seen, text(container, "name"), format!("{at}.name"), errors);
        host_ports(container, &at, &mut BTreeSet::new(), errors);
        if restart == "Always" {
            hooks_and_probes(container, &at, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if is_set(container, field) {
                errors.push(FieldError::forbidden(
                    format!("{at}.{field}"),
                    "may not be set for init containers without restartPolicy=Always",
                ));
            }
        }
    }
}

pub(super) fn ephemeral(spec: &Value, volumes: &Volumes<'_>, path: &str, errors: &mut Errors) {
    let others: BTreeSet<&str> = list(spec, "containers")
        .iter()
        .chain(list(spec, "initContainers"))
        .map(|c| text(c, "name"))
        .collect();
    let mut seen = others.clone();
    for (i, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let at = format!("{path}.ephemeralContainers[{i}]");
        common(container, volumes, &at, errors);
        unique(&mut seen, text(container, "name"), format!("{at}.name"), errors);
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.push(FieldError::new(
                FieldErrorKind::NotFound,
                format!("{at}.targetContainerName"),
                Some(target.into()),
                "",
            ));
        }
        for field in ["ports", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if is_set(container, field) {
                errors.push(FieldError::forbidden(
                    format!("{at}.{field}"),
                    "cannot be set for an Ephemeral Container",
                ));
            }
        }
    }
}

fn common(container: &Value, volumes: &Volumes<'_>, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(at("name"), ""));
    } else {
        errors.extend(
            validation::dns1123_label(name).into_iter().map(|c| FieldError::invalid(at("name"), name, c)),
        );
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(at("image"), ""));
    }
    one_of(container, "terminationMessagePolicy", path, &["File", "FallbackToLogsOnError"], errors);
    ports(list(container, "ports"), &at("ports"), errors);
    environment(container, path, errors);
    mounts(container, volumes, path, errors);
    match text(container, "imagePullPolicy") {
        "Always" | "IfNotPresent" | "Never" => {}
        "" => errors.push(FieldError::required(at("imagePullPolicy"), "")),
        other => errors.push(FieldError::not_supported(
            at("imagePullPolicy"),
            other,
            &["Always", "IfNotPresent", "Never"],
        )),
    }
    if let Some(resources) = container.get("resources") {
        resource_requirements(resources, &at("resources"), errors);
    }
    security_context(container.get("securityContext"), &at("securityContext"), errors);
}

fn security_context(context: Option<&Value>, path: &str, errors: &mut Errors) {
    let Some(context) = context.filter(|c| c.is_object()) else { return };
    for field in ["runAsUser", "runAsGroup"] {
        if let Some(id) = int(context, field) {
            for complaint in validation::in_range(id, 0, i64::from(i32::MAX)) {
                errors.push(FieldError::invalid(format!("{path}.{field}"), id, complaint));
            }
        }
    }
    let on = |field: &str| context.get(field).and_then(Value::as_bool);
    if on("allowPrivilegeEscalation") == Some(false) && on("privileged") == Some(true) {
        errors.push(FieldError::invalid(
            path,
            context.clone(),
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        ));
    }
}

fn ports(ports: &[Value], path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let at = |field: &str| format!("{path}[{i}].{field}");
        let name = text(port, "name");
        if !name.is_empty() {
            let complaints = validation::port_name(name);
            if complaints.is_empty() {
                unique(&mut seen, name, at("name"), errors);
            }
            errors.extend(complaints.into_iter().map(|c| FieldError::invalid(at("name"), name, c)));
        }
        match int(port, "containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(at("containerPort"), "")),
            number => {
                for complaint in validation::port_number(number) {
                    errors.push(FieldError::invalid(at("containerPort"), number, complaint));
                }
            }
        }
        let host = int(port, "hostPort").unwrap_or(0);
        if host != 0 {
            for complaint in validation::port_number(host) {
                errors.push(FieldError::invalid(at("hostPort"), host, complaint));
            }
        }
        match text(port, "protocol") {
            "" => errors.push(FieldError::required(at("protocol"), "")),
            "TCP" | "UDP" | "SCTP" => {}
            other => {
                errors.push(FieldError::not_supported(at("protocol"), other, &["SCTP", "TCP", "UDP"]));
            }
        }
    }
}

fn host_ports(container: &Value, path: &str, seen: &mut BTreeSet<String>, errors: &mut Errors) {
    for (i, port) in list(container, "ports").iter().enumerate() {
        let number = int(port, "hostPort").unwrap_or(0);
        if number == 0 {
            continue;
        }
        let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
        if !seen.insert(key.clone()) {
            errors.push(FieldError::duplicate(format!("{path}.ports[{i}].hostPort"), key));
        }
    }
}

fn environment(container: &Value, path: &str, errors: &mut Errors) {
    for (i, variable) in list(container, "env").iter().enumerate() {
        let at = format!("{path}.env[{i}]");
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        } else {
            for complaint in validation::env_name(name) {
                errors.push(FieldError::invalid(format!("{at}.name"), name, complaint));
            }
        }
        let Some(from) = variable.get("valueFrom").filter(|f| f.is_object()) else { continue };
        let at = format!("{at}.valueFrom");
        let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
        let given = sources.iter().filter(|s| is_set(from, s)).count();
        for source in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(reference) = from.get(source) {
                for field in ["name", "key"] {
                    if text(reference, field).is_empty() {
                        errors.push(FieldError::required(format!("{at}.{source}.{field}"), ""));
                    }
                }
            }
        }
        if given == 0 {
            errors.push(FieldError::invalid(
                &at[..],
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                 `fileKeyRef`",
            ));
        } else if !text(variable, "value").is_empty() {
            errors.push(FieldError::invalid(&at[..], "", "may not be specified when `value` is not empty"));
        } else if given > 1 {
            errors.push(FieldError::invalid(
                &at[..],
                "",
                "may not have more than one field specified at a time",
            ));
        }
    }
}

fn mounts(container: &Value, volumes: &Volumes<'_>, path: &str, errors: &mut Errors) {
    let devices = list(container, "volumeDevices");
    let mut points = BTreeSet::new();
    for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
        let at = |field: &str| format!("{path}.volumeMounts[{i}].{field}");
        let (name, point) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        }
        if !volumes.contains_key(name) {
            errors.push(FieldError::new(FieldErrorKind::NotFound, at("name"), Some(name.into()), ""));
        }
        if point.is_empty() {
            errors.push(FieldError::required(at("mountPath"), ""));
        }
        if !points.insert(point) {
            errors.push(FieldError::invalid(at("mountPath"), point, "must be unique"));
        }
        if devices.iter().any(|d| text(d, "name") == name) {
            errors.push(FieldError::invalid(at("name"), name, "must not already exist in volumeDevices"));
        }
        let sub_path = text(mount, "subPath");
        if sub_path.starts_with('/') {
            errors.push(FieldError::invalid(
                format!("{path}.volumeMounts.subPath"),
                sub_path,
                "must be a relative path",
            ));
        } else if sub_path.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(
                format!("{path}.volumeMounts.subPath"),
                sub_path,
                "must not contain '..'",
            ));
        }
    }
    let mut seen = BTreeSet::new();
    for (i, device) in devices.iter().enumerate() {
        let at = |field: &str| format!("{path}.volumeDevices[{i}].{field}");
        let (name, point) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        }
        if !seen.insert(name) {
            errors.push(FieldError::invalid(at("name"), name, "must be unique"));
        }
        match volumes.get(name) {
            None => {
                errors.push(FieldError::new(FieldErrorKind::NotFound, at("name"), Some(name.into()), ""));
            }
            Some(volume) if !is_set(volume, "persistentVolumeClaim") && !is_set(volume, "ephemeral") => {
                errors.push(FieldError::invalid(
                    at("name"),
                    name,
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                ));
            }
            Some(_) => {}
        }
        if point.is_empty() {
            errors.push(FieldError::required(at("devicePath"), ""));
        }
    }
}

fn hooks_and_probes(container: &Value, path: &str, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = container.pointer(&format!("/lifecycle/{hook}")).filter(|h| h.is_object()) {
            self::handler(handler, &format!("{path}.lifecycle.{hook}"), errors);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(name).filter(|p| p.is_object()) else { continue };
        let at = format!("{path}.{name}");
        handler(probe, &at, errors);
        for field in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            if let Some(number) = int(probe, field)
                && number < 0
            {
                errors.push(FieldError::invalid(format!("{at}.{field}"), number, NON_NEGATIVE));
            }
        }
        if let Some(grace) = int(probe, "terminationGracePeriodSeconds") {
            if name == "readinessProbe" {
                errors.push(FieldError::invalid(
                    format!("{at}.terminationGracePeriodSeconds"),
                    grace,
                    "must not be set for readinessProbes",
                ));
            } else if grace <= 0 {
                errors.push(FieldError::invalid(
                    format!("{at}.terminationGracePeriodSeconds"),
                    grace,
                    "must be greater than 0",
                ));
            }
        }
        let successes = int(probe, "successThreshold").unwrap_or(0);
        if name != "readinessProbe" && successes != 1 {
            errors.push(FieldError::invalid(format!("{at}.successThreshold"), successes, "must be 1"));
        }
    }
}

fn handler(handler: &Value, path: &str, errors: &mut Errors) {
    let mut given = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = handler.get(kind).filter(|a| a.is_object()) else { continue };
        let at = format!("{path}.{kind}");
        given += 1;
        if given > 1 {
            errors.push(FieldError::forbidden(at, "may not specify more than 1 handler type"));
            continue;
        }
        match kind {
            "exec" if list(action, "command").is_empty() => {
                errors.push(FieldError::required(format!("{at}.command"), ""));
            }
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.push(FieldError::required(format!("{at}.path"), ""));
                }
                port_or_name(action.get("port"), &format!("{at}.port"), errors);
                let scheme = text(action, "scheme");
                if !["HTTP", "HTTPS"].contains(&scheme) {
                    errors.push(FieldError::not_supported(
                        format!("{at}.scheme"),
                        scheme,
                        &["HTTP", "HTTPS"],
                    ));
                }
            }
            "tcpSocket" => port_or_name(action.get("port"), &format!("{at}.port"), errors),
            "grpc" => {
                let port = int(action, "port").unwrap_or(0);
                for complaint in validation::port_number(port) {
                    errors.push(FieldError::invalid(format!("{at}.port"), port, complaint));
                }
            }
            "sleep" => meta::non_negative(action, "/seconds", &format!("{at}.seconds"), errors),
            _ => {}
        }
    }
    if given == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

/// A port given as number or as name.
fn port_or_name(port: Option<&Value>, path: &str, errors: &mut Errors) {
    match port {
        Some(Value::String(name)) => {
            for complaint in validation::port_name(name) {
                errors.push(FieldError::invalid(path, name.as_str(), complaint));
            }
        }
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            for complaint in validation::port_number(number) {
                errors.push(FieldError::invalid(path, number, complaint));
            }
        }
    }
}
