//! Mutations of texts, each from a seed and its number.

use crate::draw;

/// What breaks readers.
const PIECES: [&str; 30] = [
    "",
    "\"",
    "'",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "0",
    "-1",
    "1e999",
    "9223372036854775808",
    "0.0000000001",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "\u{7f}",
    "\u{feff}",
    "\u{1f600}",
    "\n",
    "\r\n",
    "\t",
    "../",
    "$(x)",
    "&a *a",
    "!!binary",
    "%",
];

/// A text of the corpus, changed at some places.
pub fn mutated(corpus: &[String], seed: u64, number: u64) -> String {
    let number = number.to_string();
    let draw = |step: &str, what: &str, high: usize| {
        draw::between(seed, &["fuzz", &number, step, what], 0, high.max(1) as u64) as usize
    };
    let pick = |step: &str| -> Vec<char> {
        corpus.get(draw(step, "text", corpus.len())).map(|text| text.chars().collect()).unwrap_or_default()
    };
    let mut text = pick("first");
    for step in 0..=draw("steps", "", 4) {
        let step = step.to_string();
        let at = draw(&step, "at", text.len() + 1);
        let end = (at + draw(&step, "length", 12)).min(text.len());
        match draw(&step, "how", 7) {
            0 => drop(text.drain(at..end)),
            1 => {
                let piece = PIECES.get(draw(&step, "piece", PIECES.len())).copied().unwrap_or_default();
                drop(text.splice(at..at, piece.chars()));
            }
            2 => {
                let again: Vec<char> = text.get(at..end).unwrap_or_default().to_vec();
                drop(text.splice(at..at, again));
            }
            3 => {
                let other = pick(&step);
                let from = draw(&step, "from", other.len() + 1);
                text.truncate(at);
                text.extend(other.get(from..).unwrap_or_default());
            }
            4 => {
                if let Some(one) = text.get_mut(at) {
                    *one = char::from_u32(draw(&step, "letter", 0x250) as u32).unwrap_or(' ');
                }
            }
            // Far too much of it.
            5 => {
                let again: Vec<char> = text.get(at..end).unwrap_or_default().repeat(200);
                drop(text.splice(at..at, again));
            }
            _ => text.truncate(at),
        }
    }
    text.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutation_belongs_to_its_seed_and_number_and_most_of_them_differ() {
        let corpus = vec!["app=web,tier in (a, b)".to_owned(), "!gone".to_owned()];
        assert_eq!(mutated(&corpus, 1, 2), mutated(&corpus, 1, 2));
        let all: std::collections::BTreeSet<String> =
            (0..200).map(|number| mutated(&corpus, 1, number)).collect();
        assert!(all.len() > 150, "{}", all.len());
    }
}
