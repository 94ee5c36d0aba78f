//! Checks on names, label keys and the like, with the explanations kube-apiserver gives.
//!
//! Each check returns the list of complaints; empty means valid.

/// Which names a kind accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    Subdomain,
    Label,
    /// DNS-1035 label: starts with a letter.
    Label1035,
    /// Anything that can stand in a URL path (roles).
    PathSegment,
}

impl NameRule {
    /// `prefix` is set for `generateName`, where a trailing dash is allowed.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let masked;
        let name = if prefix && self != Self::PathSegment && name.ends_with('-') {
            masked = format!("{}a", &name[..name.len() - 1]);
            &masked
        } else {
            name
        };
        match self {
            Self::Subdomain => dns1123_subdomain(name),
            Self::Label => dns1123_label(name),
            Self::Label1035 => dns1035_label(name),
            Self::PathSegment if prefix => path_segment_prefix(name),
            Self::PathSegment => path_segment(name),
        }
    }
}

pub fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn regex(explanation: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{explanation} (regex used for validation is '{pattern}')");
    }
    let list = examples.iter().map(|e| format!("'{e}', ")).collect::<Vec<_>>().join(" or ");
    format!("{explanation} (e.g. {list}regex used for validation is '{pattern}')")
}

fn lower_or_digit(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_dns1123_label(value: &str) -> bool {
    let bytes = value.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            lower_or_digit(first)
                && lower_or_digit(last)
                && bytes.iter().all(|&c| lower_or_digit(c) || c == b'-')
        }
        _ => false,
    }
}

fn is_dns1123_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns1123_label)
}

pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > 63 {
        complaints.push(too_long(63));
    }
    if !is_dns1123_label(value) {
        complaints.push(if is_dns1123_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
                &["my-name", "123-abc"],
            )
        });
    }
    complaints
}

pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > 253 {
        complaints.push(too_long(253));
    }
    if !is_dns1123_subdomain(value) {
        complaints.push(regex(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
             '.', and must start and end with an alphanumeric character",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    complaints
}

pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > 63 {
        complaints.push(too_long(63));
    }
    let starts_with_letter = value.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    if !(starts_with_letter && is_dns1123_label(value)) {
        complaints.push(regex(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    complaints
}

pub fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    path_segment_prefix(name)
}

fn path_segment_prefix(name: &str) -> Vec<String> {
    ["/", "%"].iter().filter(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

fn is_qualified_part(part: &str) -> bool {
    let bytes = part.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
        }
        _ => false,
    }
}

/// A label key, annotation key, finalizer, taint key: `[prefix/]name`.
pub fn qualified_name(value: &str) -> Vec<String> {
    const EXPLANATION: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                               end with an alphanumeric character";
    const PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let mut complaints = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".to_owned());
            } else {
                complaints.extend(dns1123_subdomain(prefix).iter().map(|c| format!("prefix part {c}")));
            }
            *name
        }
        _ => {
            let text = regex(&format!("a valid label key {EXPLANATION}"), PATTERN, EXAMPLES);
            return vec![format!(
                "{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        complaints.push(format!("name part {}", too_long(63)));
    }
    if !is_qualified_part(name) {
        complaints.push(format!("name part {}", regex(EXPLANATION, PATTERN, EXAMPLES)));
    }
    complaints
}

pub fn is_qualified_name(value: &str) -> bool {
    qualified_name(value).is_empty()
}

pub fn is_label_value(value: &str) -> bool {
    label_value(value).is_empty()
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > 63 {
        complaints.push(too_long(63));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        complaints.push(regex(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    complaints
}

/// A key of a ConfigMap or Secret.
pub fn config_key(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > 253 {
        complaints.push(too_long(253));
    }
    let known = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if value.is_empty() || !value.bytes().all(known) {
        complaints.push(regex(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => complaints.push("must not be '.'".to_owned()),
        ".." => complaints.push("must not be '..'".to_owned()),
        other if other.starts_with("..") => complaints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    complaints
}

/// The name of an environment variable: any printable ASCII but `=`.
pub fn env_name(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.is_empty() {
        complaints.push("environment variable name must be non-empty".to_owned());
    }
    if !value.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        complaints.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    complaints
}

/// The name of a container or service port.
pub fn port_name(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > 15 {
        complaints.push(too_long(15));
    }
    if value.is_empty() || !value.bytes().all(|c| lower_or_digit(c) || c == b'-') {
        complaints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|c| c.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        complaints.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".to_owned());
    }
    complaints
}

pub fn port_number(value: i64) -> Vec<String> {
    in_range(value, 1, 65535)
}

pub fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) {
        Vec::new()
    } else {
        vec![format!("must be between {low} and {high}, inclusive")]
    }
}

pub fn percent(value: &str) -> Vec<String> {
    let digits = value.strip_suffix('%').unwrap_or("");
    if !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("web", true)]
    #[case("web.example.com", true)]
    #[case("0", true)]
    #[case("", false)]
    #[case("Web", false)]
    #[case("-web", false)]
    #[case("web-", false)]
    #[case("web..x", false)]
    #[case("web_x", false)]
    fn subdomains(#[case] name: &str, #[case] valid: bool) {
        assert_eq!(dns1123_subdomain(name).is_empty(), valid, "{name}");
    }

    #[test]
    fn a_label_with_dots_is_told_so_and_not_shown_a_pattern() {
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
    }

    #[test]
    fn the_explanation_of_a_bad_subdomain_names_pattern_and_example() {
        assert_eq!(
            dns1123_subdomain("Web"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
              and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
              validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
    }

    #[test]
    fn several_examples_are_joined_with_or() {
        assert!(percent("5").concat().contains("(e.g. '1%',  or '93%', regex used for validation is"));
    }

    #[rstest]
    #[case("app", true)]
    #[case("example.com/app", true)]
    #[case("/app", false)]
    #[case("a/b/c", false)]
    #[case("Example.com/app", false)]
    #[case("app_", false)]
    #[case("", false)]
    fn qualified_names(#[case] name: &str, #[case] valid: bool) {
        assert_eq!(qualified_name(name).is_empty(), valid, "{name}");
    }

    #[test]
    fn a_generate_name_may_end_with_a_dash() {
        assert!(NameRule::Subdomain.check("web-", true).is_empty());
        assert!(!NameRule::Subdomain.check("web-", false).is_empty());
    }
}
