//! The one place that writes: data to stdout, talk to stderr.
//!
//! A closed pipe ends the talking, not the work.

use std::io::{IsTerminal, Write};

/// One line of data.
pub fn data(line: &str) {
    let _ = writeln!(anstream::stdout(), "{}", clean(line));
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

/// Names and messages come from the cluster; control characters in them must not reach the terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
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
        assert_eq!(clean("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\n");
    }
}
