//! Texts of others, changed at random: what everybody can write must never stop evac, and what is said of it is one line.
//!
//! Each target has a corpus in `crates/sim/corpus`, one text after the other, divided by lines of `%%`. Every text is tried as it is, and then
//! mutations of it that a seed decides. A text that breaks something goes into the corpus.

mod mutate;
mod server;
mod texts;
mod watches;

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, anyhow};

pub use mutate::mutated;

/// What is tried.
pub struct Target {
    pub name: &'static str,
    pub about: &'static str,
    corpus: &'static str,
    /// Tries texts, one after the other, until one is wrong: says which, and what is wrong with it.
    tries: fn(&mut dyn Iterator<Item = String>) -> Option<(String, String)>,
}

/// All targets.
pub const ALL: [Target; 8] = [
    Target {
        name: "patches",
        about: "patches of three kinds, sent to the embedded server",
        corpus: include_str!("../../corpus/patches.txt"),
        tries: |texts| server::each(texts, server::patch),
    },
    Target {
        name: "selectors",
        about: "label selectors",
        corpus: include_str!("../../corpus/selectors.txt"),
        tries: |texts| each(texts, texts::selector),
    },
    Target {
        name: "quantities",
        about: "quantities",
        corpus: include_str!("../../corpus/quantities.txt"),
        tries: |texts| each(texts, texts::quantity),
    },
    Target {
        name: "cel",
        about: "conditions of webhooks in CEL, sent to the embedded server",
        corpus: include_str!("../../corpus/cel.txt"),
        tries: |texts| server::each(texts, server::condition),
    },
    Target {
        name: "kubeconfigs",
        about: "kubeconfigs of tenants",
        corpus: include_str!("../../corpus/kubeconfigs.txt"),
        tries: |texts| each(texts, texts::kubeconfig),
    },
    Target {
        name: "watches",
        about: "frames of a watch",
        corpus: include_str!("../../corpus/watches.txt"),
        tries: watches::each,
    },
    Target {
        name: "marks",
        about: "marks of drains on nodes",
        corpus: include_str!("../../corpus/marks.txt"),
        tries: |texts| each(texts, texts::mark),
    },
    Target {
        name: "policies",
        about: "failover policies",
        corpus: include_str!("../../corpus/policies.txt"),
        tries: |texts| each(texts, texts::policy),
    },
];

pub fn named(name: &str) -> Option<&'static Target> {
    const { &ALL }.iter().find(|one| one.name == name)
}

impl Target {
    pub fn corpus(&self) -> Vec<String> {
        self.corpus.split("%%\n").map(|text| text.trim_end_matches('\n').to_owned()).collect()
    }

    /// Tries the corpus and so many mutations; how many texts were tried. The first text with which something is wrong is the error.
    pub fn run(&self, mutations: u64, seed: u64) -> Result<u64> {
        let corpus = self.corpus();
        let mut count = 0;
        let mut last = String::new();
        let mutants = (0..mutations).map(|number| mutated(&corpus, seed, number));
        let mut texts = corpus.iter().cloned().chain(mutants).inspect(|text| {
            count += 1;
            last.clone_from(text);
        });
        let wrong = catch_unwind(AssertUnwindSafe(|| (self.tries)(&mut texts)));
        drop(texts);
        match wrong {
            Ok(None) => Ok(count),
            Ok(Some((text, words))) => Err(anyhow!("{}: {words}: {text:?}", self.name)),
            Err(_) => Err(anyhow!("{}: a panic: {last:?}", self.name)),
        }
    }
}

/// Tries texts with a function that says what is wrong.
fn each(
    texts: &mut dyn Iterator<Item = String>,
    wrong: fn(&str) -> Option<String>,
) -> Option<(String, String)> {
    for text in texts {
        if let Some(words) = wrong(&text) {
            return Some((text, words));
        }
    }
    None
}

/// What is told to people is one line without control characters.
fn not_one_line(told: &str) -> Option<String> {
    told.chars().any(char::is_control).then(|| format!("what is said of it is not one line: {told:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_text_and_a_panic_too() {
        let target = |tries| Target { name: "test", about: "", corpus: "a\n%%\nb", tries };
        let clean = target(|texts| each(texts, |_| None));
        assert_eq!((clean.corpus(), clean.run(5, 1).unwrap()), (vec!["a".into(), "b".into()], 7));
        let wrong = target(|texts| each(texts, |text| (text == "b").then(|| "it is b".into())));
        assert_eq!(wrong.run(0, 1).unwrap_err().to_string(), "test: it is b: \"b\"");
        let panics = target(|texts| each(texts, |text| (text == "b").then(|| panic!("no"))));
        assert_eq!(panics.run(0, 1).unwrap_err().to_string(), "test: a panic: \"b\"");
    }
}
