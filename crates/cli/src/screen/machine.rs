//! A machine that is being moved, on one row of a terminal: how far its memory has been copied.
//!
//! What matters least goes first when there is no room: the bytes behind us, the bar, the rate, the namespace. The share stays.

use evac_core::cluster::fact::Key;
use evac_core::drain::transfer::Copied;

use super::bar::bar;
use crate::live::{cut, width};

const BAR: usize = 12;

/// Where a row stands: within so many columns, with names as long as this above and below it.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub columns: usize,
    pub names: usize,
}

/// The row of a guest whose memory is being copied.
pub fn copying(instance: &Key, attempt: u32, copied: &Copied, place: Place) -> String {
    let again = if attempt > 1 { format!(" (try {attempt})") } else { String::new() };
    let tails = tails(copied);
    row(instance, &again, &tails, place)
}

/// The row of a guest of whose migration only the phase is known.
pub fn in_phase(instance: &Key, phase: &str, age: &str, place: Place) -> String {
    row(instance, "", &[format!("{phase} for {age}"), phase.to_owned()], place)
}

/// A name with the most that there is room for; the name is cut before the least is left out.
fn row<'a>(instance: &Key, again: &str, tails: &'a [String], place: Place) -> String {
    let Place { columns, names: longest } = place;
    let names = [format!("{instance}{again}"), format!("{}{again}", instance.name)];
    let least = tails.len().saturating_sub(1);
    let with =
        |tails: &'a [String]| names.iter().flat_map(move |name| tails.iter().map(move |tail| (name, tail)));
    for (name, tail) in with(&tails[..least]).chain(with(&tails[least..])) {
        if longest.max(width(name)) + 2 + width(tail) <= columns {
            return format!("{name:<longest$}  {tail}");
        }
        if width(name) + 2 + width(tail) <= columns {
            return format!("{name}  {tail}");
        }
    }
    let tail = tails.last().cloned().unwrap_or_default();
    let room = columns.saturating_sub(width(&tail) + 2);
    format!("{}  {tail}", cut(&names[1], room))
}

/// From all there is to say to the least.
fn tails(copied: &Copied) -> Vec<String> {
    let percent = format!("{:>2}%", copied.share.percent());
    let left = format!("{} left", size(copied.remaining_bytes));
    let rate = copied.bytes_per_second.map_or(String::new(), |rate| format!(", {}/s", size(rate)));
    let bar = bar(usize::from(copied.share.percent()), 100, BAR);
    let done = size(copied.processed_bytes);
    if copied.converging == Some(false) {
        let why = "outruns the copy";
        return vec![
            format!("{bar} {percent}  {done} copied, {left}{rate}, {why}"),
            format!("{bar} {percent}  {left}{rate}, {why}"),
            format!("{percent}  {left}, {why}"),
            format!("{percent}  {why}"),
            percent,
        ];
    }
    vec![
        format!("{bar} {percent}  {done} copied, {left}{rate}"),
        format!("{bar} {percent}  {left}{rate}"),
        format!("{percent}  {left}{rate}"),
        format!("{percent}  {left}"),
        percent,
    ]
}

/// Three digits and a unit.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // What would be written as four digits belongs to the next unit.
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let unit = units[unit];
    if value < 9.95 && unit != "B" { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use evac_core::drain::transfer::Share;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn copied(converging: bool) -> Copied {
        Copied {
            processed_bytes: 3 * GIB / 2,
            remaining_bytes: 2 * GIB,
            total_bytes: Some(4 * GIB),
            bytes_per_second: Some(310 << 20),
            dirty_bytes_per_second: Some(1 << 20),
            share: Share::of(43, 57),
            converging: Some(converging),
        }
    }

    fn line(name: &str, columns: usize, converging: bool) -> String {
        copying(&Key::new("default", name), 1, &copied(converging), Place { columns, names: 0 })
    }

    #[test]
    fn a_row_says_what_it_has_room_for() {
        for (columns, expected) in [
            (90, "default/billing  █████░░░░░░░ 43%  1.5 GiB copied, 2.0 GiB left, 310 MiB/s"),
            (70, "default/billing  █████░░░░░░░ 43%  2.0 GiB left, 310 MiB/s"),
            (54, "default/billing  43%  2.0 GiB left, 310 MiB/s"),
            (40, "default/billing  43%  2.0 GiB left"),
            (30, "billing  43%  2.0 GiB left"),
            (20, "default/billing  43%"),
            (12, "billing  43%"),
            (9, "bil…  43%"),
        ] {
            assert_eq!(line("billing", columns, true), expected);
        }
    }

    #[test]
    fn no_row_is_longer_than_its_terminal() {
        for columns in 8..160 {
            for name in ["a", "a-name-that-is-as-long-as-names-may-be-and-that-is-sixty-three-63"] {
                for converging in [true, false] {
                    let line = line(name, columns, converging);
                    assert!(width(&line) <= columns && line.contains("43%"), "{columns}: {line}");
                }
            }
        }
    }

    #[test]
    fn a_guest_that_cannot_be_caught_up_with_and_a_further_try_are_named() {
        assert!(line("a", 80, false).ends_with("43%  2.0 GiB left, 310 MiB/s, outruns the copy"));
        let again = copying(&Key::new("b", "a"), 2, &copied(true), Place { columns: 80, names: 0 });
        assert!(again.starts_with("b/a (try 2)  █"), "{again}");
    }

    #[test]
    fn sizes_have_at_most_three_digits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (10 << 20, "10 MiB"),
            (1023 << 20, "1.0 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
