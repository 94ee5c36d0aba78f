//! The language of the cases: a title, then requests.
//!
//! ```text
//! def pod(name) = {"metadata":{"name":"$name"},"spec":{"containers":[{"name":"c","image":"i"}]}}
//!
//! == a pod can be labelled
//! POST pods
//! @pod(a)
//! > rv = /metadata/resourceVersion
//!
//! MERGE pods/a
//! {"metadata":{"resourceVersion":"$rv","labels":{"x":"y"}}}
//! ```
//!
//! A step is a block of lines. Its first line is a verb and a path; lines like `Name: value` after it are
//! headers; the rest is the body, sent as it stands. `#` begins a comment line.
//!
//! - Verbs are HTTP methods, or `MERGE`, `STRATEGIC`, `JSON` and `APPLY` for the four patches, or
//!   `WATCH n`, which reads n events.
//! - A path without a leading slash is in the case's own namespace: `pods/a`, `apps/v1:deployments/a`.
//! - `> name = /pointer` keeps a value of the answer; `$name` uses it. `$ns` is the case's namespace.
//! - `> until 200` repeats the step until it answers so, for what becomes true a moment later.
//! - `> skip /pointer` leaves a part of the answer out of the comparison; say why in a comment.
//! - `> as protobuf` sends the body, written as JSON, in protobuf form.
//! - `FORGET all` makes the embedded server lose its past, which the real one of these cases does by itself.
//! - `@name(a; b)` stands for the text of a `def`, with its parameters replaced.
//! - The header `As: nobody` sends the request without the administrator's token.

use std::collections::BTreeMap;

use evac_apiserver::protobuf;

/// A named sequence of requests.
#[derive(Debug, Clone)]
pub struct Case {
    pub topic: String,
    pub name: String,
    pub steps: Vec<Step>,
}

impl Case {
    pub fn title(&self) -> String {
        format!("{}: {}", self.topic, self.name)
    }
}

/// One request and what to keep of its answer.
#[derive(Debug, Clone, Default)]
pub struct Step {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// Events to read from a watch.
    pub events: Option<usize>,
    pub keep: Vec<(String, String)>,
    pub until: Option<u16>,
    pub skip: Vec<String>,
    /// The body is sent in protobuf form.
    pub protobuf: bool,
}

impl Step {
    /// A request without headers of its own.
    pub fn request(verb: &str, path: &str, body: &str) -> Self {
        let mut step = Self { path: absolute(path), body: body.to_owned(), ..Self::default() };
        step.set_verb(verb);
        step
    }

    fn set_verb(&mut self, verb: &str) {
        let patch = |kind: &str| ("PATCH".to_owned(), Some(format!("application/{kind}")));
        let (method, content) = match verb {
            "MERGE" => patch("merge-patch+json"),
            "STRATEGIC" => patch("strategic-merge-patch+json"),
            "JSON" => patch("json-patch+json"),
            "APPLY" => patch("apply-patch+yaml"),
            "WATCH" => ("GET".to_owned(), None),
            "POST" | "PUT" | "DELETE" => (verb.to_owned(), Some("application/json".to_owned())),
            other => (other.to_owned(), None),
        };
        self.method = method;
        self.headers.extend(content.map(|c| ("Content-Type".to_owned(), c)));
    }

    /// A header of the case replaces the one its verb implies; an empty one removes it.
    fn set_header(&mut self, name: &str, value: &str) {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
    }

    /// The request as a line of a report.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

struct Macro {
    parameters: Vec<String>,
    text: String,
}

/// Reads the cases of a topic. A mistake in a case file is a mistake of the test, so it panics.
pub fn parse(topic: &str, text: &str) -> Vec<Case> {
    let mut macros: BTreeMap<String, Macro> = BTreeMap::new();
    let mut cases: Vec<Case> = Vec::new();
    let uncommented: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for block in uncommented.split(|line| line.trim().is_empty()).filter(|block| !block.is_empty()) {
        let mut lines = block.to_vec();
        if let Some(definition) = lines[0].strip_prefix("def ") {
            let (head, first) =
                definition.split_once(" =").unwrap_or_else(|| panic!("{topic}: {definition}"));
            let (name, parameters) = head.split_once('(').unwrap_or((head, ")"));
            let parameters = arguments(parameters.trim_end_matches(')'));
            let text = std::iter::once(first.trim())
                .chain(lines[1..].iter().copied())
                .collect::<Vec<_>>()
                .join("\n");
            macros.insert(name.trim().to_owned(), Macro { parameters, text });
            continue;
        }
        if let Some(name) = lines[0].strip_prefix("== ") {
            cases.push(Case { topic: topic.to_owned(), name: name.trim().to_owned(), steps: Vec::new() });
            lines.remove(0);
        }
        if lines.is_empty() {
            continue;
        }
        let step = step(&lines, &macros);
        cases.last_mut().unwrap_or_else(|| panic!("{topic}: a step before any case")).steps.push(step);
    }
    cases
}

fn step(lines: &[&str], macros: &BTreeMap<String, Macro>) -> Step {
    let mut words = lines[0].splitn(2, ' ');
    let verb = words.next().unwrap_or_default();
    let mut path = words.next().unwrap_or_else(|| panic!("no path in {:?}", lines[0])).trim();
    let mut step = Step::default();
    step.set_verb(verb);
    if verb == "WATCH" {
        let (count, rest) = path.split_once(' ').unwrap_or_else(|| panic!("WATCH n path: {path}"));
        step.events = Some(count.parse().unwrap_or_else(|_| panic!("not a number: {count}")));
        path = rest.trim();
    }
    step.path = absolute(&expand(path, macros));
    let mut body: Vec<&str> = Vec::new();
    for line in &lines[1..] {
        if let Some(directive) = line.strip_prefix("> ") {
            direct(&mut step, directive.trim());
        } else if let Some((name, value)) = header(line).filter(|_| body.is_empty()) {
            step.set_header(name, value);
        } else {
            body.push(line);
        }
    }
    step.body = expand(&body.join("\n"), macros);
    step
}

fn direct(step: &mut Step, directive: &str) {
    if let Some(code) = directive.strip_prefix("until ") {
        step.until = Some(code.parse().unwrap_or_else(|_| panic!("not a code: {directive}")));
    } else if let Some(pointer) = directive.strip_prefix("skip ") {
        step.skip.push(pointer.to_owned());
    } else if directive == "as protobuf" {
        step.protobuf = true;
        step.set_header("Content-Type", protobuf::MEDIA_TYPE);
    } else if let Some((name, pointer)) = directive.split_once(" = ") {
        step.keep.push((name.to_owned(), pointer.to_owned()));
    } else {
        panic!("unknown directive {directive:?}");
    }
}

fn header(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_name.then(|| (name, value.trim()))
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    match path.split_once(':') {
        Some((group, rest)) if !group.contains(['?', '%']) => format!("/apis/{group}/namespaces/$ns/{rest}"),
        _ => format!("/api/v1/namespaces/$ns/{path}"),
    }
}

fn arguments(text: &str) -> Vec<String> {
    if text.trim().is_empty() { Vec::new() } else { text.split(';').map(|a| a.trim().to_owned()).collect() }
}

/// Replaces `@name(arguments)`, also inside what they stand for.
fn expand(text: &str, macros: &BTreeMap<String, Macro>) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        done.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let Some(found) = macros.get(&after[..end]) else {
            done.push('@');
            rest = after;
            continue;
        };
        let mut given = Vec::new();
        rest = &after[end..];
        if rest.starts_with('(') {
            let close = closing(rest);
            given = arguments(&rest[1..close]);
            rest = &rest[close + 1..];
        }
        let mut body = found.text.clone();
        for (index, parameter) in found.parameters.iter().enumerate() {
            let value = given.get(index).map_or("", String::as_str);
            body = body.replace(&format!("${parameter}"), value);
        }
        done.push_str(&expand(&body, macros));
    }
    done.push_str(rest);
    done
}

fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("no closing parenthesis in {text:?}")
}

#[test]
fn a_case_is_a_title_and_requests_with_headers_a_body_and_kept_values() {
    let text = "def pod(name; more) = {\"name\":\"$name\"$more}\n\n== one\nPOST apps/v1:pods\nAccept: a/b\n\
                @pod(x; ,\"y\":1)\n> rv = /metadata/resourceVersion\n\nWATCH 2 pods?watch=1\n";
    let cases = parse("topic", text);
    let [first, second] = &cases[0].steps[..] else { panic!("{cases:?}") };
    assert_eq!(first.path, "/apis/apps/v1/namespaces/$ns/pods");
    assert_eq!(first.body, "{\"name\":\"x\",\"y\":1}");
    assert_eq!(first.keep, [("rv".to_owned(), "/metadata/resourceVersion".to_owned())]);
    assert_eq!(second.events, Some(2));
}
