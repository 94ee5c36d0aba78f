//! The one place that writes: data to stdout, talk to stderr.
//!
//! A closed pipe ends the talking, not the work. Names and messages come from the cluster, where a
//! controller that may write a pod's status, or a webhook, chooses their text; so nothing in them may end our line and
//! begin another that looks like ours.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::live;

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Data,
    Talk,
}

/// Whether each line begins with the time.
static TIMESTAMPS: AtomicBool = AtomicBool::new(false);

/// From now on each line of data or talk begins with the time, as the lines of `kubectl logs --timestamps` do.
pub fn begin_lines_with_time() {
    TIMESTAMPS.store(true, Ordering::Relaxed);
}

/// Writes a line, styles and all; above the view of how things are, if there is one.
fn line(stream: Stream, line: String) {
    let line = if TIMESTAMPS.load(Ordering::Relaxed) {
        format!("{:.0} {line}", evac_clock::time_of_day())
    } else {
        line
    };
    put(stream, line);
}

fn put(stream: Stream, text: String) {
    if let Err(text) = live::above(stream, text) {
        print(stream, &text);
    }
}

/// Talk that others put into lines, such as a log.
pub struct Talk;

impl Write for Talk {
    fn write(&mut self, lines: &[u8]) -> std::io::Result<usize> {
        put(Stream::Talk, String::from_utf8_lossy(lines).trim_end_matches('\n').to_owned());
        Ok(lines.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes a line where the terminal, the file or the pipe is now.
pub fn print(stream: Stream, line: &str) {
    let _ = match stream {
        Stream::Data => writeln!(anstream::stdout(), "{line}"),
        Stream::Talk => writeln!(anstream::stderr(), "{line}"),
    };
}

/// One line of data.
pub fn data(text: &str) {
    line(Stream::Data, clean(text));
}

/// Data in a format: JSON, YAML, a table. Its line breaks are ours: JSON and YAML escape or indent those of others, and the cells of a table are
/// made by [`clean`]. A script that reads it gets every other character as it is.
pub fn document(text: &str) {
    let shown = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    put(Stream::Data, text.trim_end_matches('\n').chars().map(shown).collect());
}

/// One line of talk.
pub fn talk(text: &str) {
    line(Stream::Talk, clean(text));
}

/// A remark on what is shown, and a command that is shown.
pub fn remark(text: &str) {
    let style = anstyle::Style::new().fg_color(Some(anstyle::AnsiColor::Cyan.into()));
    line(Stream::Talk, format!("{style}{}{style:#}", clean(text)));
}

pub fn command(text: &str) {
    let style = anstyle::Style::new().bold();
    line(Stream::Talk, format!("{style}{}{style:#}", clean(text)));
}

pub fn warning(text: &str) {
    let style = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Yellow.into()));
    line(Stream::Talk, format!("{style}Warning:{style:#} {}", clean(text)));
}

pub fn error(text: &str) {
    let style = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Red.into()));
    let text = clean(text);
    // Messages of the server come with their own beginning, as kubectl prints them.
    line(
        Stream::Talk,
        if text.starts_with("Error from server") {
            format!("{style}{text}{style:#}")
        } else {
            format!("{style}error:{style:#} {text}")
        },
    );
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

/// Whether a person reads what is talked: it goes to a terminal, and nobody asked to be plain.
pub fn is_interactive() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether a view of how things are can be drawn below what is printed: all of it goes to a terminal.
pub fn is_screen() -> bool {
    is_interactive() && std::io::stdout().is_terminal()
}

/// Columns and rows of the terminal.
pub fn size() -> (usize, usize) {
    let (rows, columns) = console::Term::stderr().size();
    (usize::from(columns), usize::from(rows))
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
