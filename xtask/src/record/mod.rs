//! What `evac demo` looks like: the transcript in `docs/demo.md` and the moving picture `docs/demo.svg`. Both are made by running it, never typed.

mod cast;
mod terminal;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use self::terminal::{Recording, record};

const TRANSCRIPT: &str = "docs/demo.md";
const PICTURE: &str = "docs/demo.svg";
const BEGIN: &str = "<!-- recorded by `cargo xtask record` -->\n```console\n";
const END: &str = "```\n<!-- end of record -->";

const TITLE: &str = "evac demo on a terminal: what would happen to a node, a drain, a budget that is in the way, a cancel, a maintenance";
/// Rows and columns of the picture.
const SIZE: (u16, u16) = (30, 104);

/// Runs the demo, and puts what it prints and what is seen of it on a terminal into the documents.
pub fn write(root: &Path) -> Result<()> {
    build(root)?;
    let path = root.join(TRANSCRIPT);
    let page = fs::read_to_string(&path)?;
    let (before, _, after) = parts(&page)?;
    let (printed, recording) = both(root)?;
    fs::write(&path, format!("{before}{BEGIN}{printed}{END}{after}"))?;
    fs::write(root.join(PICTURE), cast::svg(&recording, TITLE, SIZE))?;
    Ok(())
}

/// Builds the program and compares.
pub fn check(root: &Path) -> Result<()> {
    build(root)?;
    compare(root)
}

/// Fails when the demo prints something else than the documents show, with the program as it was built last: the tests have built one, and another build
/// for itself alone takes minutes, because it asks for other features of the same crates. Made-up names and times differ from run to run and do not count;
/// neither does the order in which pods end.
pub fn compare(root: &Path) -> Result<()> {
    let page = fs::read_to_string(root.join(TRANSCRIPT))?;
    let (_, shown, _) = parts(&page)?;
    let picture =
        fs::read_to_string(root.join(PICTURE)).with_context(|| format!("{PICTURE} cannot be read"))?;
    let picture = cast::read(&picture)?;
    let (printed, recording) = both(root)?;
    let seen = cast::read(&cast::svg(&recording, TITLE, SIZE))?;
    same(TRANSCRIPT, "prints", &comparable(shown), &comparable(&printed))?;
    same(PICTURE, "prints on a terminal", &comparable(&picture.lines), &comparable(&seen.lines))?;
    same(PICTURE, "shows while it works", &nodes_at_work(&picture.moments), &nodes_at_work(&seen.moments))?;
    shows_its_lines(&picture)?;
    shows_its_lines(&seen)
}

fn same(document: &str, does: &str, shown: &[String], printed: &[String]) -> Result<()> {
    if shown != printed {
        bail!(
            "{document} is not what the demo {does}; run `cargo xtask record`.\nshown: {shown:#?}\nprinted: {printed:#?}"
        );
    }
    Ok(())
}

/// The rows of a picture are its lines, however they are broken.
fn shows_its_lines(picture: &cast::Shown) -> Result<()> {
    let joined = |text: &str| text.split_whitespace().collect::<String>();
    let rows: Vec<String> = picture.paper.iter().map(|row| joined(row)).collect();
    match picture.lines.lines().find(|line| !is_made_of(&joined(line), &rows)) {
        Some(line) => bail!("{PICTURE} does not show the line {line:?} of its own description"),
        None => Ok(()),
    }
}

fn is_made_of(line: &str, rows: &[String]) -> bool {
    let begins = |row: &&String| !row.is_empty() && line.starts_with(row.as_str());
    line.is_empty() || rows.iter().filter(begins).any(|row| is_made_of(&line[row.len()..], rows))
}

/// The nodes of which a bar was seen.
fn nodes_at_work(moments: &[String]) -> Vec<String> {
    let with_bar = moments.iter().filter(|row| row.contains(['█', '░']) && row.starts_with("node-"));
    let names: BTreeSet<&str> = with_bar.filter_map(|row| row.split_whitespace().next()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// What the demo prints for a program that reads it, and what a person sees on a terminal, from two runs side by side.
fn both(root: &Path) -> Result<(String, Recording)> {
    thread::scope(|scope| {
        let printed = scope.spawn(|| demo(root));
        let recording = on_terminal(root)?;
        let printed = printed.join().map_err(|_| anyhow::anyhow!("the demo could not be run"))??;
        Ok((printed, recording))
    })
}

fn on_terminal(root: &Path) -> Result<Recording> {
    let command = pty_process::blocking::Command::new(root.join("target/debug/evac"))
        .arg("demo")
        .current_dir(root)
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR");
    let recording = record(command, SIZE.0, SIZE.1)?;
    if !recording.status.success() {
        bail!("the demo failed on a terminal:\n{}", recording.lines);
    }
    Ok(recording)
}

fn parts(page: &str) -> Result<(&str, &str, &str)> {
    let (before, rest) =
        page.split_once(BEGIN).with_context(|| format!("{TRANSCRIPT} has no place for the record"))?;
    let (shown, after) =
        rest.split_once(END).with_context(|| format!("{TRANSCRIPT} has no end of the record"))?;
    Ok((before, shown, after))
}

fn build(root: &Path) -> Result<()> {
    let built = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["build", "--quiet", "--package", "evac"])
        .status();
    if !built.context("cargo build cannot be run")?.success() {
        bail!("the program could not be built, see above");
    }
    Ok(())
}

fn demo(root: &Path) -> Result<String> {
    let output = Command::new("sh")
        .current_dir(root)
        .args(["-c", "target/debug/evac demo 2>&1"])
        .env("NO_COLOR", "1")
        .output()
        .context("cannot run the demo")?;
    let text = String::from_utf8(output.stdout).context("the demo prints something that is not text")?;
    if !output.status.success() {
        bail!("the demo failed:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// The different lines without what differs from run to run: how many pods a node has is the scheduler's
/// choice, and depends on what was up first.
fn comparable(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        // Where a maintenance stands at the moment at which it is looked at.
        .filter(|line| !line.ends_with(" have to leave") && !line.ends_with(" has to leave"))
        .map(|line| {
            let line = line.split(" (and ").next().unwrap_or_default();
            let sums_up = sums_up(line);
            line.split(' ')
                .map(|word| {
                    if sums_up && word.parse::<f64>().is_ok() {
                        return "*".to_owned();
                    }
                    let parts: Vec<&str> =
                        word.split('-').map(|part| if is_made_up(part) { "*" } else { part }).collect();
                    parts.join("-")
                })
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

/// A line such as `6 pods: 2 moved, 4 evicted, in 3.3 s`, whose numbers are those of one run.
fn sums_up(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(of, what)| of.ends_with(" pods") && what.contains(", in "))
}

/// The endings of generated names, and durations.
fn is_made_up(part: &str) -> bool {
    let part = part.trim_end_matches([')', ',', ';', ':']);
    let generated =
        (5..=10).contains(&part.len()) && part.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c));
    let duration = part.ends_with('s') && part[..part.len() - 1].parse::<f64>().is_ok();
    generated || duration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_differ_in_nothing_that_is_compared() {
        let seen = "node node-3: 30%, 7 pods have to leave\nnode node-3: 90%, 1 pod has to leave\npod/web-4k7gd evicted";
        assert_eq!(comparable(seen), comparable("pod/web-9xqzt evicted"));
        let (one, another) =
            ("6 pods: 2 moved, 4 evicted, in 3.3 s", "7 pods: 3 moved, 4 evicted, in 12.0 s");
        assert_eq!(comparable(one), comparable(another));
        assert_ne!(comparable(one), comparable("6 pods: 2 moved, 4 deleted, in 3.3 s"));
    }

    #[test]
    fn a_picture_that_lacks_a_row_of_a_line_does_not_show_that_line() {
        let rows = |rows: &[&str]| rows.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(is_made_of("abcdef", &rows(&["abc", "ab", "cdef"])), "whichever row fits first");
        assert!(!is_made_of("abcdef", &rows(&["abc", "de"])));
        assert!(!is_made_of("abcdef", &rows(&["", "abcdefg"])));
    }
}
