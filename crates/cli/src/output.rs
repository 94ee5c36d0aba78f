//! The one place that writes: data to stdout, talk to stderr.
//!
//! A closed pipe ends the talking, not the work. Names and messages come from the cluster, where a
//! controller that may write a pod's status, or a webhook, chooses their text; so nothing in them may end our line and
//! begin another that looks like ours.

use std::io::{IsTerminal, Write};

/// One line of data.
pub fn data(line: &str) {
    let _ = writeln!(anstream::stdout(), "{}", clean(line));
}

/// Data in a format: JSON, YAML, a table. Its line breaks are ours: JSON and YAML escape or indent those of others, and the cells of a table are
/// made by [`clean`]. A script that reads it gets every other character as it is.
pub fn document(text: &str) {
    let shown = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    let _ = writeln!(
        anstream::stdout(),
        "{}",
        text.trim_end_matches('\n').chars().map(shown).collect::<String>()
    );
}

/// One line of talk.
pub fn talk(line: &str) {
    let _ = writeln!(anstream::stderr(), "{}", clean(line));
}

pub fn warning(line: &str) {
    let style = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Yellow.into()));
    let _ = writeln!(anstream::stderr(), "{style}Warning:{style:#} {}", clean(line));
}

pub fn error(line: &str) {
    let style = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Red.into()));
    let line = clean(line);
    // Messages of the server come with their own beginning, as kubectl prints them.
    if line.starts_with("Error from server") {
        let _ = writeln!(anstream::stderr(), "{style}{line}{style:#}");
    } else {
        let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {line}");
    }
}

/// Text on one line that shows what it says. Line breaks and tabs become blanks; other control characters, and those that turn the direction of
/// writing, must not reach the terminal.
pub fn clean(text: &str) -> String {
    let plain = |c: char| match c {
        '\n' | '\r' | '\t' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => ' ',
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.trim_end_matches(['\n', '\r']).chars().map(plain).collect()
}

/// Whether a person is watching: both a terminal and not asked to be plain.
pub fn is_interactive() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The columns of the terminal on which a person watches.
pub fn columns() -> usize {
    usize::from(console::Term::stderr().size().1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_from_the_cluster_are_defused() {
        assert_eq!(clean("a\u{1b}[31mb\n"), "a\u{fffd}[31mb");
    }

    #[test]
    fn a_message_from_the_cluster_cannot_begin_a_line_of_its_own() {
        for end in ["\n", "\r\n", "\r", "\u{85}", "\u{b}", "\u{c}", "\u{2028}", "\u{2029}"] {
            let forged = format!(
                "image cannot be pulled{end}node/worker-1 drained{end}node/worker-1 safe to power off: yes"
            );
            let shown = clean(&forged);
            assert_eq!(shown.lines().count(), 1, "{end:?}");
            assert!(!shown.contains(['\r', '\u{85}', '\u{b}', '\u{c}', '\u{2028}', '\u{2029}']), "{end:?}");
        }
    }

    #[test]
    fn the_direction_of_writing_stays() {
        assert_eq!(
            clean("safe: \u{202e}on\u{202c} \u{2066}x\u{2069}"),
            "safe: \u{fffd}on\u{fffd} \u{fffd}x\u{fffd}"
        );
    }
}
