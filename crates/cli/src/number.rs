//! Whole numbers on the command line, with words that say which are meant.

use std::fmt::Display;
use std::str::FromStr;

/// Reads a whole number within bounds.
pub fn between<T>(low: T, high: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + Display + PartialOrd + Copy + Send + Sync + 'static,
{
    move |text| match text.parse::<T>() {
        Ok(number) if low <= number && number <= high => Ok(number),
        _ => Err(format!("give a whole number from {low} to {high}")),
    }
}

/// Reads a whole number that is not below the bound.
pub fn from<T>(low: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + Display + PartialOrd + Copy + Send + Sync + 'static,
{
    move |text| match text.parse::<T>() {
        Ok(number) if low <= number => Ok(number),
        _ => Err(format!("give a whole number from {low} on")),
    }
}

/// Reads any whole number; negative ones have a meaning where this is used.
pub fn any(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "give a whole number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_and_what_is_out_of_bounds_are_told_the_bounds() {
        let words = "give a whole number from 1 to 255";
        for bad in ["0", "256", "-1", "x", "", "1.5"] {
            assert_eq!(between(1_u8, 255)(bad), Err(words.to_owned()), "{bad}");
        }
        assert_eq!(between(1_u8, 255)("7"), Ok(7));
        assert_eq!(from(1_usize)("0"), Err("give a whole number from 1 on".to_owned()));
        assert_eq!(any("-1"), Ok(-1));
        assert_eq!(any("5s"), Err("give a whole number".to_owned()));
    }
}
