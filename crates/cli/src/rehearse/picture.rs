//! The chart of a run as SVG, as a web page that needs nothing else, and as lines for a terminal. Names come from the cluster, so every text is escaped.

use std::fmt::Write as _;

use evac_core::drain::explain;

use super::chart::{Chart, What};
use crate::output::clean;

const WIDTH: f64 = 1100.0;
const LABELS: f64 = 300.0;
const NOTES: f64 = 180.0;
const ROW: f64 = 22.0;
const AXIS: f64 = 28.0;

fn colour(what: What) -> &'static str {
    match what {
        What::Drained => "#4a7c59",
        What::NotDrained => "#b3423a",
        What::Waits => "#d9d4c7",
        What::Copied => "#3f6fb0",
        What::CopyFailed => "#d98a3d",
        What::Stops => "#8a6fb0",
    }
}

fn words(what: What) -> &'static str {
    match what {
        What::Drained => "drained",
        What::NotDrained => "not drained",
        What::Waits => "waits for its turn",
        What::Copied => "is copied",
        What::CopyFailed => "copy that failed",
        What::Stops => "pod ends",
    }
}

/// Text that stays text in XML and HTML, whatever is in it.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

fn span(seconds: f64) -> String {
    explain::span(seconds.round() as i64)
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{head}…")
}

/// The chart as a picture.
pub fn svg(chart: &Chart, title: &str) -> String {
    let height = AXIS * 2.0 + ROW * chart.rows.len() as f64 + ROW;
    let room = WIDTH - LABELS - NOTES;
    let x = |seconds: f64| LABELS + seconds / chart.seconds * room;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">"
    );
    let _ = writeln!(text, "<title>{}</title>", escape(title));
    let _ = writeln!(text, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>");
    let bottom = AXIS + ROW * chart.rows.len() as f64;
    for mark in chart.marks() {
        let at = x(mark);
        let _ = writeln!(
            text,
            "<line x1=\"{at:.1}\" y1=\"{AXIS}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#e4e4e4\"/><text x=\"{at:.1}\" y=\"18\" fill=\"#555555\" text-anchor=\"middle\">{}</text>",
            span(mark)
        );
    }
    for (number, row) in chart.rows.iter().enumerate() {
        let top = AXIS + ROW * number as f64;
        let (indent, weight) = if row.is_node { (8.0, "bold") } else { (24.0, "normal") };
        let _ = writeln!(
            text,
            "<text x=\"{indent}\" y=\"{:.1}\" font-weight=\"{weight}\"><title>{}</title>{}</text>",
            top + 15.0,
            escape(&row.label),
            escape(&shortened(&row.label, 42))
        );
        for bar in &row.bars {
            let _ = writeln!(
                text,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" rx=\"2\" fill=\"{}\"><title>{}: {} from {} to {}</title></rect>",
                x(bar.from),
                top + 4.0,
                (x(bar.to) - x(bar.from)).max(1.0),
                ROW - 8.0,
                colour(bar.what),
                escape(&row.label),
                words(bar.what),
                span(bar.from),
                span(bar.to)
            );
        }
        let end = row.bars.iter().map(|bar| bar.to).fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#333333\">{}</text>",
            x(end) + 6.0,
            top + 15.0,
            escape(&shortened(&row.note, 28))
        );
    }
    let mut at = 8.0;
    for what in [What::Drained, What::NotDrained, What::Waits, What::Copied, What::CopyFailed, What::Stops] {
        let _ = writeln!(
            text,
            "<rect x=\"{at}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{:.1}\" fill=\"#333333\">{}</text>",
            bottom + 12.0,
            colour(what),
            at + 18.0,
            bottom + 22.0,
            words(what)
        );
        at += 150.0;
    }
    text.push_str("</svg>\n");
    text
}

/// A page with what was said and the picture, in one file.
pub fn html(chart: &Chart, title: &str, lines: &[String]) -> String {
    let mut said = String::new();
    for line in lines {
        let _ = writeln!(said, "<p>{}</p>", escape(line));
    }
    let picture = svg(chart, title);
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>body {{ font-family: sans-serif; margin: 2em; }} p {{ margin: 0.2em 0; }} svg {{ max-width: 100%; height: auto; }}</style>\n\
         </head>\n<body>\n<h1>{title}</h1>\n{said}{picture}</body>\n</html>\n"
    )
}

/// The chart as lines of text.
pub fn lines(chart: &Chart, columns: usize) -> Vec<String> {
    let labels = 34;
    let room = columns.saturating_sub(labels + 24).clamp(20, 100);
    let column = |seconds: f64| ((seconds / chart.seconds * room as f64).round() as usize).min(room);
    let mut lines = Vec::new();
    for row in &chart.rows {
        let mut cells = vec![' '; room];
        for bar in &row.bars {
            let (from, to) = (column(bar.from).min(room - 1), column(bar.to));
            let sign = match bar.what {
                What::Drained => '=',
                What::NotDrained => 'x',
                What::Waits => '.',
                What::Copied => '#',
                What::CopyFailed => '!',
                What::Stops => '~',
            };
            cells[from..to.max(from + 1)].fill(sign);
        }
        let label = if row.is_node { row.label.clone() } else { format!("  {}", row.label) };
        let end = row.bars.iter().map(|bar| bar.to).fold(0.0, f64::max);
        let cells: String = cells.into_iter().collect();
        lines.push(format!(
            "{:labels$} |{cells}| {}, {}",
            shortened(&clean(&label), labels),
            span(end),
            clean(&row.note)
        ));
    }
    lines.push(format!(
        "{:labels$}  = drained  x not drained  . waits  # is copied  ! copy that failed  ~ pod ends",
        ""
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::chart::{Bar, Row};
    use super::*;

    const HOSTILE: &str = "<script>alert('x')</script>\"&\u{1b}[31m\u{202e}";

    fn chart() -> Chart {
        let bar = |from, to, what| Bar { from, to, what };
        let row = |label: &str, is_node, bars, note: &str| Row {
            label: label.into(),
            is_node,
            bars,
            note: note.into(),
        };
        Chart {
            rows: vec![
                row("node-1", true, vec![bar(0.0, 60.0, What::Drained)], "drained"),
                row(
                    HOSTILE,
                    false,
                    vec![bar(0.0, 20.0, What::Waits), bar(20.0, 60.0, What::Copied)],
                    HOSTILE,
                ),
            ],
            seconds: 60.0,
        }
    }

    #[test]
    fn names_with_markup_in_them_stay_names() {
        for page in [svg(&chart(), HOSTILE), html(&chart(), HOSTILE, &[HOSTILE.to_owned()])] {
            assert!(!page.contains("<script"), "{page}");
            assert!(!page.contains("alert('x')"), "{page}");
            assert!(!page.contains(['\u{1b}', '\u{202e}']), "{page}");
            assert!(page.contains("&lt;script&gt;"), "{page}");
        }
        let shown = lines(&chart(), 120).join("\n");
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    }

    #[test]
    fn a_page_needs_nothing_else_and_runs_nothing() {
        let page = html(&chart(), "a drain", &[]);
        assert!(!page.contains("src=") && !page.contains("href="), "{page}");
        assert!(page.contains("default-src 'none'"));
        assert_eq!(page.matches("http://").count(), 1, "only the name of the format: {page}");
    }

    #[test]
    fn bars_in_a_terminal_are_as_long_as_their_time() {
        let lines = lines(&chart(), 118);
        assert_eq!(lines[0].matches('=').count(), 60, "{}", lines[0]);
        assert_eq!(lines[1].matches('.').count(), 20, "{}", lines[1]);
        assert_eq!(lines[1].matches('#').count(), 40, "{}", lines[1]);
        assert!(lines[0].ends_with("| 1m00s, drained"), "{}", lines[0]);
    }
}
