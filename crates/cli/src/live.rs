//! The last rows of a terminal, which show how things are, while what happened scrolls by above them.
//!
//! They are drawn at most ten times a second, in synchronized updates, so that a terminal never shows half of one. What the program prints meanwhile is
//! kept until then and comes out above. Whoever prints does so by `output`, which asks here whether there is such a view.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::{self, Stream};

/// Between two drawings.
const PAUSE: Duration = Duration::from_millis(100);
/// Without news, so that times go on.
const TICK: Duration = Duration::from_secs(1);

const BEGIN_UPDATE: &str = "\x1b[?2026h";
const END_UPDATE: &str = "\x1b[?2026l";
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// How a row looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    /// Waiting alone will not help.
    Alarm,
}

/// One row; what does not fit the terminal is cut off by whoever makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub text: String,
    pub tone: Tone,
}

/// The columns that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// As much of a text as fits, with a sign that something is missing.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used < columns
    };
    let begin: String = text.chars().take_while(fits).collect();
    if columns == 0 { String::new() } else { format!("{begin}…") }
}

/// A view at the bottom of the terminal, until it is dropped.
pub struct Live {
    area: Arc<Area>,
    painter: Option<JoinHandle<()>>,
}

/// What the rows are, for a terminal of so many columns and rows.
type Layout = Box<dyn FnMut(usize, usize) -> Vec<Row> + Send>;

struct Area {
    state: Mutex<State>,
    news: Condvar,
}

struct State {
    layout: Layout,
    /// Printed meanwhile.
    above: Vec<(Stream, String)>,
    /// The columns of each row that stands on the terminal.
    drawn: Vec<usize>,
    due: bool,
    closed: bool,
}

/// The one view there is.
static SHOWN: Mutex<Option<Arc<Area>>> = Mutex::new(None);

fn shown() -> Option<Arc<Area>> {
    locked(&SHOWN).clone()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a line printed above the view; gives it back if there is none.
pub fn above(stream: Stream, line: String) -> Result<(), String> {
    let Some(area) = shown() else { return Err(line) };
    let mut state = locked(&area.state);
    if state.closed {
        return Err(line);
    }
    state.above.push((stream, line));
    state.due = true;
    area.news.notify_all();
    Ok(())
}

/// Takes the view away, for who leaves the program without a return.
pub fn end() {
    if let Some(area) = shown() {
        area.close();
    }
}

impl Live {
    /// Shows a view from now on, in place of one that may be there.
    pub fn begin(layout: impl FnMut(usize, usize) -> Vec<Row> + Send + 'static) -> Self {
        end();
        let state = State {
            layout: Box::new(layout),
            above: Vec::new(),
            drawn: Vec::new(),
            due: false,
            closed: false,
        };
        let area = Arc::new(Area { state: Mutex::new(state), news: Condvar::new() });
        *locked(&SHOWN) = Some(area.clone());
        let shown = area.clone();
        let painter = std::thread::Builder::new().name("screen".into()).spawn(move || shown.paint());
        if painter.is_err() {
            area.close();
        }
        Self { area, painter: painter.ok() }
    }

    /// Something has changed that should be seen.
    pub fn refresh(&self) {
        locked(&self.area.state).due = true;
        self.area.news.notify_all();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.area.close();
        *locked(&SHOWN) = None;
        if let Some(painter) = self.painter.take() {
            let _ = painter.join();
        }
    }
}

impl Area {
    fn paint(&self) {
        let mut state = locked(&self.state);
        loop {
            let waited = self.news.wait_timeout_while(state, TICK, |state| !state.due && !state.closed);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.closed {
                return;
            }
            state.draw();
            let rested = self.news.wait_timeout_while(state, PAUSE, |state| !state.closed);
            state = rested.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn close(&self) {
        let mut state = locked(&self.state);
        if !state.closed {
            state.closed = true;
            state.clear();
        }
        self.news.notify_all();
    }
}

impl State {
    fn draw(&mut self) {
        self.due = false;
        let (columns, height) = output::size();
        let rows = (self.layout)(columns, height);
        self.replace(&rows, columns);
    }

    fn clear(&mut self) {
        let columns = output::size().0;
        self.replace(&[], columns);
    }

    /// Puts other rows in the place of those that stand there, with what was printed before them.
    fn replace(&mut self, rows: &[Row], columns: usize) {
        let above = std::mem::take(&mut self.above);
        if rows.is_empty() && self.drawn.is_empty() {
            print_all(&above);
            return;
        }
        // Not through what takes styles out where none are wanted: it would take out these, too.
        let terminal = std::io::stderr();
        let styled = anstream::AutoStream::choice(&terminal) != anstream::ColorChoice::Never;
        let mut begin = format!("{BEGIN_UPDATE}{}", erased(&self.drawn, columns));
        if !above.is_empty() {
            let _ = terminal.lock().write_all(begin.as_bytes());
            begin.clear();
            print_all(&above);
        }
        let cursor = if rows.is_empty() { SHOW_CURSOR } else { HIDE_CURSOR };
        let _ = write!(terminal.lock(), "{begin}{}{cursor}{END_UPDATE}", drawn(rows, styled));
        self.drawn = rows.iter().map(|row| width(&row.text)).collect();
    }
}

fn print_all(lines: &[(Stream, String)]) {
    for (stream, line) in lines {
        output::print(*stream, line);
    }
}

/// Goes to where the first row begins, and clears all from there. The terminal may have become narrower, and rows have broken since.
fn erased(drawn: &[usize], columns: usize) -> String {
    let height: usize = drawn.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
    if height == 0 { String::new() } else { format!("\r\x1b[{height}A\x1b[J") }
}

/// The rows, with the cursor below them, where what a person types does no harm.
fn drawn(rows: &[Row], styled: bool) -> String {
    let alarm = anstyle::Style::new().fg_color(Some(anstyle::AnsiColor::Yellow.into()));
    let mut text = String::new();
    for row in rows {
        let style = if row.tone == Tone::Alarm && styled { alarm } else { anstyle::Style::new() };
        let _ = writeln!(text, "{style}{}{style:#}", row.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(texts: &[&str]) -> Vec<Row> {
        texts.iter().map(|text| Row { text: (*text).to_owned(), tone: Tone::Plain }).collect()
    }

    fn widths(rows: &[Row]) -> Vec<usize> {
        rows.iter().map(|row| width(&row.text)).collect()
    }

    /// What a terminal shows after these bytes.
    fn shown(terminal: &mut vt100::Parser, bytes: &str) -> String {
        terminal.process(bytes.replace('\n', "\r\n").as_bytes());
        terminal.screen().contents()
    }

    #[test]
    fn new_rows_take_the_place_of_the_old_ones_and_what_is_above_stays() {
        let mut terminal = vt100::Parser::new(8, 20, 0);
        let old = rows(&["one", "two", "three"]);
        shown(&mut terminal, "log\n");
        shown(&mut terminal, &drawn(&old, true));
        // Somebody types meanwhile.
        shown(&mut terminal, "^C");
        let bytes = format!("{}more log\n{}", erased(&widths(&old), 20), drawn(&rows(&["four"]), true));
        assert_eq!(shown(&mut terminal, &bytes), "log\nmore log\nfour");
        assert_eq!(shown(&mut terminal, &erased(&[4], 20)), "log\nmore log");
    }

    #[test]
    fn rows_that_the_terminal_has_broken_since_are_taken_away_whole() {
        let mut terminal = vt100::Parser::new(8, 20, 0);
        let old = rows(&["a row of this length", "two"]);
        shown(&mut terminal, "log\n");
        // As a terminal of half the width has it.
        shown(&mut terminal, "a row of t\nhis length\ntwo\n");
        assert_eq!(shown(&mut terminal, &erased(&widths(&old), 10)), "log");
    }

    #[test]
    fn an_alarm_has_a_colour_where_colours_are_wanted() {
        let alarm = [Row { text: "x".into(), tone: Tone::Alarm }];
        assert_eq!(drawn(&alarm, true), "\u{1b}[33mx\u{1b}[0m\n");
        assert_eq!(drawn(&alarm, false), "x\n");
    }

    #[test]
    fn a_text_that_is_too_long_says_that_something_is_missing() {
        assert_eq!([cut("abc", 3), cut("abcd", 3), cut("abcd", 1), cut("a", 0)], ["abc", "ab…", "…", ""]);
        assert_eq!(cut("日本語", 5), "日本…", "each takes two columns");
    }
}
