//! Reading what agents say, and bars that do not run backwards.

use proptest::prelude::*;

use super::exposition::parse;
use super::{Copying, Sample, Share};
use crate::cluster::fact::Key;
use crate::testing::at;

const MIB: u64 = 1 << 20;

fn sample(seconds: i64, processed: u64, remaining: u64, rate: u64, dirty: u64) -> Sample {
    Sample {
        at: Some(at(seconds)),
        processed: processed * MIB,
        remaining: remaining * MIB,
        total: Some(1024 * MIB),
        rate: Some(rate * MIB),
        dirty_rate: Some(dirty * MIB),
    }
}

#[test]
fn the_newest_of_several_samples_counts_and_other_lines_do_not() {
    let text = r#"
# HELP kubevirt_vmi_migration_data_remaining_bytes The rest.
# TYPE kubevirt_vmi_migration_data_remaining_bytes gauge
kubevirt_vmi_migration_data_remaining_bytes{name="web",namespace="shop",node="n"} 3e+08 1767225610000
kubevirt_vmi_migration_data_remaining_bytes{name="web",namespace="shop",node="n"} 2e+08 1767225615000
kubevirt_vmi_migration_data_remaining_bytes{name="web",namespace="shop",node="n"} 4e+08 1767225605000
kubevirt_vmi_migration_data_processed_bytes{name="web",namespace="shop",node="n"} 7e+08 1767225610000
kubevirt_vmi_migration_data_processed_bytes{name="web",namespace="shop",node="n"} 8.00000001e+08 1767225615000
kubevirt_vmi_migration_data_bytes_total{name="web",namespace="shop",node="n"} 1e+09 1767225615000
kubevirt_vmi_migration_dirty_memory_rate_bytes{name="web",namespace="shop",node="n"} 1e+06 1767225615000
kubevirt_vmi_migration_memory_transfer_rate_bytes{name="web",namespace="shop",node="n"} 2e+07 1767225615000
kubevirt_vmi_memory_used_bytes{name="web",namespace="shop",node="n"} 5
go_goroutines 12
"#;
    let found = parse(text);
    let newest = Sample {
        at: Some(at(15)),
        processed: 800_000_001,
        remaining: 200_000_000,
        total: Some(1_000_000_000),
        rate: Some(20_000_000),
        dirty_rate: Some(1_000_000),
    };
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(Key::new("shop", "web"), newest)]);
}

#[test]
fn older_names_missing_times_and_escapes_are_understood() {
    let text = concat!(
        r#"kubevirt_vmi_migration_data_remaining_bytes{namespace="a", name="odd\"}{ \\x",} 10"#,
        "\n",
        r#"kubevirt_vmi_migration_data_processed_bytes {name="odd\"}{ \\x",namespace="a"} 20"#,
        "\n",
        r#"kubevirt_vmi_migration_data_total_bytes{name="odd\"}{ \\x",namespace="a"} 30"#,
        "\r\n",
        r#"kubevirt_vmi_migration_disk_transfer_rate_bytes{name="odd\"}{ \\x",namespace="a"} 5"#,
    );
    let expected =
        Sample { processed: 20, remaining: 10, total: Some(30), rate: Some(5), ..Sample::default() };
    assert_eq!(parse(text).into_iter().collect::<Vec<_>>(), [(Key::new("a", r#"odd"}{ \x"#), expected)]);
}

#[test]
fn what_is_no_sample_is_passed_over() {
    for lines in [
        // No rest.
        r#"kubevirt_vmi_migration_data_processed_bytes{name="a",namespace="b"} 20"#,
        // Nobody's.
        "kubevirt_vmi_migration_data_processed_bytes{name=\"a\"} 1\nkubevirt_vmi_migration_data_remaining_bytes{name=\"a\"} 1",
        "kubevirt_vmi_migration_data_processed_bytes{name=\"\",namespace=\"b\"} 1\nkubevirt_vmi_migration_data_remaining_bytes{name=\"\",namespace=\"b\"} 1",
        // No counts.
        "kubevirt_vmi_migration_data_processed_bytes{name=\"a\",namespace=\"b\"} NaN\nkubevirt_vmi_migration_data_remaining_bytes{name=\"a\",namespace=\"b\"} -1",
        "kubevirt_vmi_migration_data_processed_bytes{name=\"a\",namespace=\"b\"} 7\nkubevirt_vmi_migration_data_remaining_bytes{name=\"a\",namespace=\"b\"} +Inf",
        "kubevirt_vmi_migration_data_processed_bytes{name=\"a\",namespace=\"b\"} 1e300\nkubevirt_vmi_migration_data_remaining_bytes{name=\"a\",namespace=\"b\"} 7",
        // Nothing has begun.
        "kubevirt_vmi_migration_data_processed_bytes{name=\"a\",namespace=\"b\"} 0\nkubevirt_vmi_migration_data_remaining_bytes{name=\"a\",namespace=\"b\"} 0",
        // Cut off.
        r#"kubevirt_vmi_migration_data_processed_bytes{name="a",namespace="b"#,
        r"kubevirt_vmi_migration_data_processed_bytes{",
        "<html>not what you think</html>",
    ] {
        assert!(parse(lines).is_empty(), "{lines}");
    }
}

#[test]
fn a_share_never_runs_backwards_and_is_not_whole_before_the_end() {
    let mut copying = Copying::begin(sample(0, 100, 900, 100, 0));
    assert_eq!(copying.told().share.percent(), 10);
    assert!(copying.take(sample(5, 1000, 0, 100, 0)));
    assert_eq!(copying.told().share.percent(), 99);
    assert!(copying.take(sample(10, 1100, 400, 100, 50)));
    assert_eq!(copying.told().share.percent(), 99);
    assert_eq!(copying.told().remaining_bytes, 400 * MIB);
}

#[test]
fn what_the_guest_changes_meanwhile_is_part_of_the_way() {
    // Half as fast as the copy: of what is left as much again will follow.
    let copying = Copying::begin(sample(0, 500, 500, 100, 50));
    assert_eq!(copying.told().share.percent(), 33);
}

#[test]
fn a_guest_that_is_faster_than_its_copy_is_named_after_two_samples_and_its_bar_stands_still() {
    let mut copying = Copying::begin(sample(0, 200, 800, 100, 20));
    let before = copying.told().share;
    copying.take(sample(5, 700, 600, 100, 100));
    assert_eq!((copying.told().share, copying.converging()), (before, Some(true)));
    copying.take(sample(10, 1200, 600, 100, 120));
    assert_eq!((copying.told().share, copying.converging()), (before, Some(false)));
    copying.take(sample(15, 1700, 100, 100, 20));
    assert!(copying.told().share > before);
    assert_eq!(copying.converging(), Some(true));
}

#[test]
fn an_old_sample_or_the_same_again_is_no_news_and_a_missing_rate_is_computed() {
    let first = Sample { rate: None, ..sample(10, 100, 900, 0, 0) };
    let mut copying = Copying::begin(first);
    assert_eq!(copying.converging(), None);
    assert!(!copying.take(first));
    assert!(!copying.take(sample(5, 50, 950, 10, 0)));
    assert!(copying.take(Sample { rate: None, ..sample(15, 200, 800, 0, 0) }));
    assert_eq!(copying.told().bytes_per_second, Some(20 * MIB));
    let timeless = Sample { at: None, ..sample(0, 300, 700, 10, 0) };
    assert!(copying.take(timeless));
    assert!(!copying.take(timeless));
}

proptest! {
    #[test]
    fn nothing_an_agent_says_breaks_the_reader_or_turns_a_bar_back(
        text in "(kubevirt_vmi_migration_data_(processed|remaining)_bytes)?[{}\"\\\\a-c=, 0-9\n]{0,60}",
        samples in prop::collection::vec((0..5000_u64, 0..5000_u64, 0..300_u64, 0..300_u64), 1..20),
    ) {
        parse(&text);
        let mut copying: Option<Copying> = None;
        let mut shown = Share::default();
        for (number, (processed, remaining, rate, dirty)) in samples.into_iter().enumerate() {
            let next = sample(number as i64, processed, remaining, rate, dirty);
            match &mut copying {
                Some(copying) => { copying.take(next); }
                None => copying = Some(Copying::begin(next)),
            }
            let share = copying.as_ref().unwrap().told().share;
            prop_assert!(share >= shown && share.percent() <= 99);
            shown = share;
        }
    }
}
