//! Where two answers differ, as lines a person can read.

use serde_json::Value;

/// One line per differing place: its pointer and both values.
pub fn differences(embedded: &Value, real: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if embedded["code"] == real["code"] {
        walk("", embedded, real, &mut lines);
    } else {
        // A refusal and an object have nothing in common that is worth comparing.
        lines.push(line("", Some(embedded), Some(real)));
    }
    lines
}

fn walk(path: &str, embedded: &Value, real: &Value, lines: &mut Vec<String>) {
    match (embedded, real) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let path = format!("{path}/{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => walk(&path, a, b, lines),
                    (a, b) => lines.push(line(&path, a, b)),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for index in 0..a.len().max(b.len()) {
                let path = format!("{path}/{index}");
                match (a.get(index), b.get(index)) {
                    (Some(a), Some(b)) => walk(&path, a, b, lines),
                    (a, b) => lines.push(line(&path, a, b)),
                }
            }
        }
        (a, b) if a != b => lines.push(line(path, Some(a), Some(b))),
        _ => {}
    }
}

fn line(path: &str, embedded: Option<&Value>, real: Option<&Value>) -> String {
    let text = |value: Option<&Value>| value.map_or("(absent)".to_owned(), shortened);
    format!("    {path}\n      embedded:   {}\n      kubernetes: {}", text(embedded), text(real))
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 1200 { text } else { text.chars().take(1200).chain("…".chars()).collect() }
}

#[test]
fn a_difference_names_its_place_and_both_values() {
    let lines = differences(&serde_json::json!({"a": [1, 2], "b": 1}), &serde_json::json!({"a": [1, 3]}));
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("/a/1") && lines[0].contains('2') && lines[0].contains('3'));
    assert!(lines[1].contains("(absent)"));
}
