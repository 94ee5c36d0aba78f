//! The order of names in which people count: node-2 before node-10.

use std::cmp::Ordering;

/// Compares names, with the numbers in them as numbers. Names that differ only in leading zeros are ordered as text.
pub fn natural(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one.as_bytes(), other.as_bytes());
    loop {
        let ordering = match (left, right) {
            ([], []) => return one.cmp(other),
            ([l, ..], [r, ..]) if l.is_ascii_digit() && r.is_ascii_digit() => {
                let (l, r) = (digits(&mut left), digits(&mut right));
                l.len().cmp(&r.len()).then(l.cmp(r))
            }
            _ => {
                let ordering = left.first().cmp(&right.first());
                (left, right) = (left.get(1..).unwrap_or_default(), right.get(1..).unwrap_or_default());
                ordering
            }
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
}

/// Takes a number from the front, and gives it without leading zeros.
fn digits<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    *text = rest;
    let zeros = number.iter().take_while(|byte| **byte == b'0').count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(mut names: Vec<&str>) -> Vec<&str> {
        names.sort_by(|one, other| natural(one, other));
        names
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        assert_eq!(ordered(vec!["node-10", "node-2", "node-1"]), ["node-1", "node-2", "node-10"]);
        assert_eq!(ordered(vec!["b1", "a10b2", "a10b10", "a9"]), ["a9", "a10b2", "a10b10", "b1"]);
        assert_eq!(ordered(vec!["ip-10-0-12-1", "ip-10-0-2-30"]), ["ip-10-0-2-30", "ip-10-0-12-1"]);
        assert_eq!(ordered(vec!["a", "", "a1", "1"]), ["", "1", "a", "a1"]);
    }

    #[test]
    fn numbers_longer_than_any_integer_are_compared_too() {
        let (small, large) = (format!("n{}", "9".repeat(40)), format!("n1{}", "0".repeat(40)));
        assert_eq!(natural(&small, &large), Ordering::Less);
    }

    #[test]
    fn only_equal_names_are_equal() {
        assert_eq!(natural("node-01", "node-1"), Ordering::Less);
        assert_eq!(natural("node-1", "node-01"), Ordering::Greater);
        assert_eq!(natural("node-1", "node-1"), Ordering::Equal);
    }
}
