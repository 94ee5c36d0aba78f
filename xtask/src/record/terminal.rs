//! A command on a terminal of its own: what is on the screen, and since when.
//!
//! The screen is sampled at most ten times a second, and never within a synchronized update, so no half-drawn screen is kept.

use std::io::Read;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pty_process::Size;
use pty_process::blocking::{Command, open};
use vt100::{Color, Parser, Screen};

/// Between two samples of the screen.
const SAMPLE: Duration = Duration::from_millis(100);
/// More rows than any recorded command prints: what has scrolled off the screen is read here.
const PAPER: u16 = 2000;

/// Neighbouring cells of one look.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run {
    pub column: u16,
    pub columns: u16,
    pub text: String,
    /// 0 to 15 of the terminal's palette.
    pub colour: Option<u8>,
    pub bold: bool,
    pub dim: bool,
}

/// One row of the screen from left to right, without the blanks at both ends of its runs.
pub type Row = Vec<Run>;

/// What a row says.
pub fn text(row: &Row) -> String {
    let mut text = String::new();
    let mut column = 0;
    for run in row {
        text.extend(std::iter::repeat_n(' ', usize::from(run.column.saturating_sub(column))));
        text.push_str(&run.text);
        column = run.column + run.columns;
    }
    text
}

#[derive(Debug, Clone)]
pub struct Frame {
    /// Since the command began.
    pub at: Duration,
    pub rows: Vec<Row>,
}

#[derive(Debug)]
pub struct Recording {
    pub frames: Vec<Frame>,
    /// Everything that stayed, with what has scrolled away: the rows as the screen has them.
    pub paper: Vec<Row>,
    /// The same as lines, however wide the screen is.
    pub lines: String,
    pub status: ExitStatus,
}

/// Runs a command on a terminal of this size until it ends.
pub fn record(command: Command, rows: u16, columns: u16) -> Result<Recording> {
    let (mut pty, pts) = open().context("no terminal can be opened")?;
    pty.resize(Size::new(rows, columns)).context("the terminal cannot be given a size")?;
    let mut child = command.spawn(pts).context("the program cannot be started on a terminal")?;
    let mut film = Film::new(rows, columns);
    let mut buffer = [0; 4096];
    #[allow(clippy::disallowed_methods, reason = "a recording is of time as it passes for people")]
    let began = Instant::now();
    // When all who have the terminal open are gone, reading fails.
    while let Ok(read @ 1..) = pty.read(&mut buffer) {
        film.take(began.elapsed(), &buffer[..read]);
    }
    film.keep();
    let status = child.wait().context("the program cannot be waited for")?;
    let paper = (0..PAPER).map(|row| cells(film.paper.screen(), row, columns)).collect();
    let printed = film.paper.screen().contents();
    Ok(Recording {
        frames: film.frames,
        paper: without_end(paper),
        lines: printed.lines().flat_map(|line| [line.trim_end(), "\n"]).collect(),
        status,
    })
}

struct Film {
    columns: u16,
    screen: Parser,
    paper: Parser,
    frames: Vec<Frame>,
    /// When the screen came to be as it is, if it is not kept yet.
    changed: Option<Duration>,
    /// The end of what was read, where a sequence may have been cut in two.
    end: Vec<u8>,
    /// An update has begun and is not complete.
    updating: bool,
}

const BEGIN_UPDATE: &[u8] = b"\x1b[?2026h";
const END_UPDATE: &[u8] = b"\x1b[?2026l";

impl Film {
    fn new(rows: u16, columns: u16) -> Self {
        Self {
            columns,
            screen: Parser::new(rows, columns, 0),
            paper: Parser::new(PAPER, columns, 0),
            frames: Vec::new(),
            changed: None,
            end: Vec::new(),
            updating: false,
        }
    }

    fn take(&mut self, at: Duration, bytes: &[u8]) {
        let due = self.frames.last().map_or(Duration::ZERO, |last| last.at + SAMPLE);
        if self.changed.is_some() && !self.updating && at >= due {
            self.keep();
        }
        self.screen.process(bytes);
        self.paper.process(bytes);
        self.changed.get_or_insert(at);
        self.end.extend_from_slice(bytes);
        let last = |what: &[u8]| self.end.windows(what.len()).rposition(|window| window == what);
        self.updating = match (last(BEGIN_UPDATE), last(END_UPDATE)) {
            (None, None) => self.updating,
            (begun, ended) => begun > ended,
        };
        let cut = self.end.len().saturating_sub(BEGIN_UPDATE.len() - 1);
        self.end.drain(..cut);
    }

    /// Keeps the screen as it is, unless nothing is to be seen of the change.
    fn keep(&mut self) {
        let Some(at) = self.changed.take() else { return };
        let screen = self.screen.screen();
        let rows: Vec<Row> = (0..screen.size().0).map(|row| cells(screen, row, self.columns)).collect();
        if self.frames.last().is_none_or(|last| last.rows != rows) {
            self.frames.push(Frame { at, rows });
        }
    }
}

fn cells(screen: &Screen, row: u16, columns: u16) -> Row {
    let mut runs: Row = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column).filter(|cell| !cell.is_wide_continuation()) else {
            continue;
        };
        let contents = if cell.has_contents() { cell.contents() } else { " " };
        let colour = match cell.fgcolor() {
            Color::Idx(colour @ 0..16) => Some(colour),
            _ => None,
        };
        let width = if cell.is_wide() { 2 } else { 1 };
        let (bold, dim) = (cell.bold(), cell.dim());
        match runs.last_mut().filter(|run| (run.colour, run.bold, run.dim) == (colour, bold, dim)) {
            Some(run) => {
                run.text.push_str(contents);
                run.columns += width;
            }
            None => {
                runs.push(Run { column, columns: width, text: contents.to_owned(), colour, bold, dim });
            }
        }
    }
    for run in &mut runs {
        let blanks = |text: &str, rest: &str| u16::try_from(text.len() - rest.len()).unwrap_or(0);
        let before = blanks(&run.text, run.text.trim_start_matches(' '));
        let after = blanks(&run.text, run.text.trim_end_matches(' '));
        run.column += before;
        run.columns = run.columns.saturating_sub(before + after);
        run.text = run.text.trim_matches(' ').to_owned();
    }
    runs.retain(|run| !run.text.is_empty());
    runs
}

fn without_end(mut rows: Vec<Row>) -> Vec<Row> {
    let used = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
    rows.truncate(used);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn film(chunks: &[(u64, &str)]) -> Film {
        let mut film = Film::new(3, 20);
        for (millis, bytes) in chunks {
            film.take(Duration::from_millis(*millis), bytes.as_bytes());
        }
        film.keep();
        film
    }

    fn seen(film: &Film) -> Vec<(u128, Vec<String>)> {
        let rows = |frame: &Frame| frame.rows.iter().map(text).filter(|text| !text.is_empty()).collect();
        film.frames.iter().map(|frame| (frame.at.as_millis(), rows(frame))).collect()
    }

    #[test]
    fn the_screen_is_kept_ten_times_a_second_at_most() {
        let film = film(&[(0, "a\r\n"), (200, "b\r\n"), (230, "c"), (260, "d"), (700, "e")]);
        let expected: [(u128, &[&str]); 4] =
            [(0, &["a"]), (200, &["a", "b"]), (230, &["a", "b", "cd"]), (700, &["a", "b", "cde"])];
        let expected: Vec<_> =
            expected.iter().map(|(at, rows)| (*at, rows.iter().map(ToString::to_string).collect())).collect();
        assert_eq!(seen(&film), expected);
    }

    #[test]
    fn a_half_drawn_screen_is_never_kept_even_if_a_sequence_comes_in_two_pieces() {
        let film = film(&[
            (0, "old"),
            (500, "\x1b[?20"),
            (501, "26h\r\x1b[Jn"),
            (900, "ew"),
            (901, "\x1b[?2026l"),
            (1500, "!"),
        ]);
        let texts: Vec<_> = seen(&film).into_iter().map(|(_, rows)| rows.concat()).collect();
        assert_eq!(texts, ["old", "new", "new!"]);
    }

    #[test]
    fn a_row_is_made_of_runs_of_one_look() {
        let film = film(&[(0, "  \x1b[1;33mWarning:\x1b[0m  x  y")]);
        let row = &film.frames[0].rows[0];
        assert_eq!(text(row), "  Warning:  x  y");
        assert_eq!((row[0].column, row[0].columns, row[0].colour, row[0].bold), (2, 8, Some(3), true));
        assert_eq!((row[1].column, row[1].text.as_str(), row[1].colour), (12, "x  y", None));
    }
}
