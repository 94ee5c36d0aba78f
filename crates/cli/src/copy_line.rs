//! How far a guest has been copied, on one line of a terminal.
//!
//! What matters least goes first when there is no room: the bytes behind us, the bar, the rate. The share stays.

use evac_core::cluster::fact::Key;
use evac_core::drain::transfer::Copied;

const BAR: usize = 12;

/// The line of a guest within `width` columns.
pub fn copy_line(instance: &Key, attempt: u32, copied: &Copied, width: usize) -> String {
    let again = if attempt > 1 { format!(" (try {attempt})") } else { String::new() };
    let head = format!("moving   vmi {instance}{again}");
    let tails = tails(copied);
    let fits = |tail: &&String| length(&head) + 2 + length(tail) <= width;
    if let Some(tail) = tails.iter().find(fits) {
        return format!("{head}  {tail}");
    }
    let tail = tails.last().cloned().unwrap_or_default();
    let room = width.saturating_sub(length(&tail) + 3);
    format!("{}…  {tail}", head.chars().take(room).collect::<String>())
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// From all there is to say to the least.
fn tails(copied: &Copied) -> Vec<String> {
    let percent = format!("{:>2}%", copied.share.percent());
    let left = format!("{} left", size(copied.remaining_bytes));
    let rate = copied.bytes_per_second.map_or(String::new(), |rate| format!(", {}/s", size(rate)));
    let bar = bar(copied.share.percent());
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

fn bar(percent: u16) -> String {
    let full = usize::from(percent) * BAR / 100;
    let head = if full < BAR { ">" } else { "" };
    format!("[{:<BAR$}]", "=".repeat(full) + head)
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

    fn line(name: &str, width: usize, converging: bool) -> String {
        copy_line(&Key::new("default", name), 1, &copied(converging), width)
    }

    #[test]
    fn a_line_says_what_it_has_room_for() {
        for (width, expected) in [
            (80, "moving   vmi default/billing  [=====>      ] 43%  2.0 GiB left, 310 MiB/s"),
            (60, "moving   vmi default/billing  43%  2.0 GiB left, 310 MiB/s"),
            (50, "moving   vmi default/billing  43%  2.0 GiB left"),
            (35, "moving   vmi default/billing  43%"),
            (20, "moving   vmi d…  43%"),
        ] {
            assert_eq!(line("billing", width, true), expected);
        }
        let wide =
            "moving   vmi default/billing  [=====>      ] 43%  1.5 GiB copied, 2.0 GiB left, 310 MiB/s";
        assert_eq!(line("billing", 100, true), wide);
    }

    #[test]
    fn no_line_is_longer_than_its_terminal() {
        for width in 8..160 {
            for name in ["a", "a-name-that-is-as-long-as-names-may-be-and-that-is-sixty-three-63"] {
                for converging in [true, false] {
                    let line = line(name, width, converging);
                    assert!(length(&line) <= width && line.contains("43%"), "{width}: {line}");
                }
            }
        }
    }

    #[test]
    fn a_guest_that_cannot_be_caught_up_with_and_a_further_try_are_named() {
        assert!(line("a", 80, false).ends_with("43%  2.0 GiB left, outruns the copy"));
        let again = copy_line(&Key::new("b", "a"), 2, &copied(true), 80);
        assert!(again.starts_with("moving   vmi b/a (try 2)  ["), "{again}");
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
