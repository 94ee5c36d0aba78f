//! A recording as a moving picture: one SVG without script and without anything from elsewhere, light or dark as its reader has it.
//!
//! The screens stand one below the other on a film that is moved by a style sheet; a row that is seen several times is stored once. Who does not
//! want things to move sees the last screen. What was printed is in the description, for those who cannot see the picture.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};

use super::terminal::{Frame, Recording, Row, Run, text};

const CELL: f32 = 8.0;
const LINE: u16 = 18;
const MARGIN: u16 = 14;
/// However long nothing happens on the screen.
const LONGEST_PAUSE: Duration = Duration::from_millis(1500);
/// To read a word that is new on the screen.
const WORD: Duration = Duration::from_millis(45);
const LONGEST_READING: Duration = Duration::from_secs(5);
/// The last screen, before it begins anew.
const END: Duration = Duration::from_secs(8);

/// The looks of a row, by the colours of the terminal's palette.
const STYLE: &str = "\
svg{--back:#fff;--text:#1f2328;--c1:#b42318;--c2:#1a7f37;--c3:#8a5a00;--c4:#0550ae;--c6:#1b6f80}
@media (prefers-color-scheme:dark){svg{--back:#0d1117;--text:#e6edf3;--c1:#ff7b72;--c2:#56d364;--c3:#e3b341;--c4:#79c0ff;--c6:#76e3ea}}
rect{fill:var(--back);stroke:var(--text);stroke-opacity:.2}
text{fill:var(--text);font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}
.b{font-weight:700}.d{opacity:.65}
.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}.c6{fill:var(--c6)}
@media (prefers-reduced-motion:reduce){#film{animation-play-state:paused;animation-delay:-99.99s;animation-duration:100s}}
";

/// The picture. Its title is what it shows, in a few words.
pub fn svg(recording: &Recording, title: &str, size: (u16, u16)) -> String {
    let (rows, columns) = size;
    let width = (f32::from(columns) * CELL) as u16 + 2 * MARGIN;
    let height = rows * LINE + 2 * MARGIN;
    let shown = paced(&recording.frames, &recording.paper);
    let total: Duration = shown.iter().sum();
    let mut stored = Stored::new(&recording.paper);
    let mut film = String::new();
    let mut keyframes = String::new();
    let mut before = Duration::ZERO;
    for (number, (frame, pause)) in recording.frames.iter().zip(&shown).enumerate() {
        let top = number * usize::from(height);
        let share = 100.0 * before.as_secs_f64() / total.as_secs_f64();
        let _ = writeln!(keyframes, "{share:.3}%{{transform:translateY(-{top}px)}}");
        for (row, content) in frame.rows.iter().enumerate().filter(|(_, content)| !content.is_empty()) {
            let y = top + usize::from(MARGIN) + row * usize::from(LINE) + 13;
            let _ = write!(film, "<use href=\"#{}\" y=\"{y}\"/>", stored.id(content));
        }
        film.push('\n');
        before += *pause;
    }
    let last = recording.frames.len().saturating_sub(1) * usize::from(height);
    let _ = writeln!(keyframes, "100%{{transform:translateY(-{last}px)}}");
    let seconds = total.as_secs_f64();
    let animation = format!(
        "#film{{animation:film {seconds:.2}s steps(1,end) infinite}}\n@keyframes film{{\n{keyframes}}}"
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"title\" aria-describedby=\"desc\">
<title id=\"title\">{}</title>
{BEGIN}{}{END_OF_LINES}
<style>
{animation}
{STYLE}</style>
<defs>
{}</defs>
<rect x=\"1\" y=\"1\" width=\"{}\" height=\"{}\" rx=\"8\"/>
<svg x=\"{MARGIN}\" width=\"{}\" height=\"{height}\"><g id=\"film\">
{film}</g></svg>
</svg>
",
        escaped(title),
        escaped(&recording.lines),
        stored.defined(),
        width - 2,
        height - 2,
        width - 2 * MARGIN,
    )
}

const BEGIN: &str = "<desc id=\"desc\">\n";
const END_OF_LINES: &str = "</desc>";

/// What a picture says was printed, and which rows of that it shows.
#[derive(Debug)]
pub struct Shown {
    pub lines: String,
    /// The rows that stayed, in their order.
    pub paper: Vec<String>,
    /// The rows that came and went.
    pub moments: Vec<String>,
}

/// Reads a picture back.
pub fn read(svg: &str) -> Result<Shown> {
    let (_, rest) = svg.split_once(BEGIN).context("the picture does not say what was printed")?;
    let (lines, rest) = rest.split_once(END_OF_LINES).context("the picture does not say what was printed")?;
    let mut shown = Shown { lines: plain(lines), paper: Vec::new(), moments: Vec::new() };
    for row in rest.split("<text id=\"").skip(1) {
        let (id, row) = row.split_once("\">").context("a row of the picture has no end")?;
        let (row, _) = row.split_once("</text>").context("a row of the picture has no end")?;
        let words: Vec<&str> = row.split(['<', '>']).skip(2).step_by(4).collect();
        let kept = if id.starts_with(KEPT) { &mut shown.paper } else { &mut shown.moments };
        kept.push(plain(&words.join(" ")));
    }
    Ok(shown)
}

/// Begins the ids of rows that stayed.
const KEPT: char = 'k';
/// Begins the ids of rows that came and went.
const MOMENT: char = 'm';

/// The rows of all screens, each once.
struct Stored<'a> {
    ids: HashMap<&'a Row, String>,
    order: Vec<(String, &'a Row)>,
}

impl<'a> Stored<'a> {
    fn new(paper: &'a [Row]) -> Self {
        let mut stored = Self { ids: HashMap::new(), order: Vec::new() };
        for row in paper.iter().filter(|row| !row.is_empty()) {
            stored.add(KEPT, row);
        }
        stored
    }

    fn add(&mut self, kind: char, row: &'a Row) -> String {
        if let Some(id) = self.ids.get(row) {
            return id.clone();
        }
        let id = format!("{kind}{}", self.order.len());
        self.order.push((id.clone(), row));
        self.ids.insert(row, id.clone());
        id
    }

    fn id(&mut self, row: &'a Row) -> String {
        self.add(MOMENT, row)
    }

    fn defined(&self) -> String {
        let one = |(id, row): &(String, &Row)| {
            format!("<text id=\"{id}\">{}</text>\n", row.iter().map(span).collect::<String>())
        };
        self.order.iter().map(one).collect()
    }
}

/// A run on the grid of the terminal, whichever font its reader has.
fn span(run: &Run) -> String {
    let mut classes: Vec<String> = run.colour.map(|colour| format!("c{}", colour % 8)).into_iter().collect();
    classes.extend(run.bold.then(|| "b".to_owned()));
    classes.extend(run.dim.then(|| "d".to_owned()));
    let class = if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
    let (x, length) = (f32::from(run.column) * CELL, f32::from(run.columns) * CELL);
    format!(
        "<tspan x=\"{x}\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\"{class}>{}</tspan>",
        escaped(&run.text)
    )
}

/// How long each screen is shown: as long as it was there, but no pause longer than needed, and long enough to read what is new.
fn paced(frames: &[Frame], paper: &[Row]) -> Vec<Duration> {
    let mut shown = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        let Some(next) = frames.get(number + 1) else {
            shown.push(END);
            break;
        };
        let before = number.checked_sub(1).map_or(&[][..], |before| &frames[before].rows);
        let new = frame.rows.iter().filter(|row| paper.contains(row) && !before.contains(row));
        let words = new.map(|row| text(row).split_whitespace().count()).sum::<usize>();
        let reading = (WORD * u32::try_from(words).unwrap_or(u32::MAX)).min(LONGEST_READING);
        shown.push(next.at.saturating_sub(frame.at).min(LONGEST_PAUSE).max(reading));
    }
    shown
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn plain(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use pty_process::blocking::Command;

    use super::super::terminal::record;
    use super::*;

    fn picture(script: &str) -> String {
        let recording = record(Command::new("sh").args(["-c", script]), 4, 20).unwrap();
        svg(&recording, "a <title>", (4, 20))
    }

    #[test]
    fn a_picture_can_be_read_back_with_what_has_scrolled_away_and_what_came_and_went() {
        let svg = picture(
            "printf 'a <b> & c\\n1\\n2\\n3\\nwaits'; sleep 0.3; printf '\\r\\033[Ja line that is too wide\\n'",
        );
        let shown = read(&svg).unwrap();
        assert_eq!(shown.lines, "a <b> & c\n1\n2\n3\na line that is too wide\n");
        assert_eq!(shown.paper, ["a <b> & c", "1", "2", "3", "a line that is too w", "ide"]);
        assert_eq!(shown.moments, ["waits"]);
    }

    #[test]
    fn a_picture_carries_no_program_and_asks_nobody_for_anything() {
        let svg = picture("printf '\\033[1;33mWarning:\\033[0m x\\n'");
        let without_name = svg.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for word in ["http", "script", "url(", "@import", "href=\"h", " on"] {
            assert!(!without_name.contains(word), "{word} in {svg}");
        }
        assert!(svg.contains("class=\"c3 b\">Warning:</tspan>"), "{svg}");
        assert!(svg.contains("a &lt;title&gt;"), "{svg}");
    }
}
