//! Resource quantities (`500m`, `1Gi`, `1e3`): exact arithmetic and the canonical form the API writes.
//!
//! The amount is kept in billionths, the finest step the API has; finer input is rounded away from zero,
//! so that whoever asks for something gets something.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Why a text is no quantity, in the API's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How the amount was written, and is written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `1Ki`
    Binary,
    /// `1k`
    Decimal,
    /// `1e3`
    Exponent,
}

const NANO: i128 = 1_000_000_000;
/// Binary quantities are capped at what fits 63 bits.
const BINARY_CAP: i128 = (i64::MAX as i128) * NANO;

/// An amount. Two quantities are equal when their amounts are, however they are written.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

impl Quantity {
    pub const ZERO: Self = Self { nano: 0, format: Format::Decimal };

    pub const fn from_int(value: i64) -> Self {
        Self { nano: value as i128 * NANO, format: Format::Decimal }
    }

    pub const fn from_milli(value: i64) -> Self {
        Self { nano: value as i128 * 1_000_000, format: Format::Decimal }
    }

    /// Whole units, rounded up.
    pub fn value(self) -> i64 {
        clamp(div_up(self.nano, NANO))
    }

    /// Thousandths, rounded up. Wide enough for exbibytes in thousandths.
    pub fn milli_value(self) -> i128 {
        div_up(self.nano, 1_000_000)
    }

    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    pub fn is_whole(self) -> bool {
        self.nano % NANO == 0
    }

    /// Rounds up to thousandths, as resource lists are stored.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        Self { nano: div_up(self.nano, 1_000_000).saturating_mul(1_000_000), ..self }
    }

    /// A sum is written like its first part, unless that is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nano: self.nano.saturating_add(other.nano), format }
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nano: self.nano.saturating_sub(other.nano), format }
    }

    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Division that rounds away from zero.
fn div_up(value: i128, by: i128) -> i128 {
    let whole = value / by;
    if value % by == 0 { whole } else { whole + value.signum() }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
        None => return Err(QuantityError::Format),
    };
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(after) => after.split_at(digits(after)),
        None => ("", rest),
    };
    let letters = suffix.bytes().take_while(|c| b"eEinumkKMGTP".contains(c)).count();
    let tail = &suffix[letters..];
    let tail = tail.strip_prefix(['-', '+']).unwrap_or(tail);
    if !tail.bytes().all(|c| c.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    Ok(Parts { negative, whole, fraction, suffix })
}

/// Base, exponent and format of a suffix.
fn scale_of(suffix: &str) -> Result<(u32, i32, Format), QuantityError> {
    let binary = |exponent| (2, exponent, Format::Binary);
    let decimal = |exponent| (10, exponent, Format::Decimal);
    Ok(match suffix {
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        other => {
            let exponent = other.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
            (10, exponent.parse().map_err(|_| QuantityError::Suffix)?, Format::Exponent)
        }
    })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let parts = split(text)?;
        let (base, exponent, mut format) = scale_of(parts.suffix)?;
        if parts.whole.is_empty() && parts.fraction.is_empty() {
            return Err(QuantityError::Numeric);
        }
        let fraction = parts.fraction.trim_end_matches('0');
        let mantissa: i128 = format!("{}{fraction}", parts.whole).trim_start_matches('0').parse().or_else(
            |e: std::num::ParseIntError| match e.kind() {
                std::num::IntErrorKind::Empty => Ok(0),
                _ => Err(QuantityError::Numeric),
            },
        )?;
        let mut power = 9 - i32::try_from(fraction.len()).unwrap_or(i32::MAX / 2);
        let mut amount = mantissa;
        if base == 2 {
            amount = amount
                .checked_shl(exponent.unsigned_abs())
                .filter(|a| a >> exponent == mantissa)
                .unwrap_or(i128::MAX);
        } else {
            power = power.saturating_add(exponent);
        }
        let mut nano = if amount == 0 { 0 } else { times_power_of_ten(amount, power) };
        if format == Format::Binary {
            nano = nano.min(BINARY_CAP);
            if nano > 0 && nano < NANO {
                format = Format::Decimal;
            }
        }
        Ok(Self { nano: if parts.negative { -nano } else { nano }, format })
    }
}

fn times_power_of_ten(amount: i128, power: i32) -> i128 {
    if power >= 0 {
        let factor = 10_i128.checked_pow(power.unsigned_abs());
        factor.and_then(|f| amount.checked_mul(f)).unwrap_or(i128::MAX)
    } else {
        // Anything above zero is at least one billionth.
        10_i128.checked_pow(power.unsigned_abs()).map_or(1, |f| div_up(amount, f))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let kilo = 1024 * NANO;
        let in_binary = self.format == Format::Binary && self.nano.abs() >= kilo && self.is_whole();
        if in_binary {
            let (mut number, mut steps) = (self.nano / NANO, 0_usize);
            while number % 1024 == 0 && steps < 6 {
                number /= 1024;
                steps += 1;
            }
            return write!(f, "{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][steps]);
        }
        let (mut number, mut exponent) = (self.nano, -9_i32);
        while number % 1000 == 0 && (exponent < 18 || self.format == Format::Exponent) {
            number /= 1000;
            exponent += 3;
        }
        if self.format == Format::Exponent {
            return if exponent == 0 { write!(f, "{number}") } else { write!(f, "{number}e{exponent}") };
        }
        let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let index = usize::try_from((exponent + 9) / 3).unwrap_or(3);
        write!(f, "{number}{}", suffix.get(index).copied().unwrap_or(""))
    }
}

/// The text the API answers with for a quantity it was given.
///
/// Text that already counts as canonical comes back as it was written, and that includes some that is
/// not the shortest (`1.500`): the server keeps it, so this does.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    let quantity: Quantity = text.parse()?;
    Ok(if counts_as_canonical(text) { text.to_owned() } else { quantity.to_string() })
}

fn counts_as_canonical(text: &str) -> bool {
    let Ok(parts) = split(text) else { return false };
    let Ok((_, exponent, format)) = scale_of(parts.suffix) else { return false };
    let digits = format!("{}{}", parts.whole, parts.fraction);
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let Ok(number) = digits.parse::<i64>() else { return false };
    if text == "0" {
        return true;
    }
    match format {
        Format::Binary => {
            let room = 15 - length - (exponent * 3 / 10) - 1;
            parts.fraction.is_empty() && room >= 0 && number & 7 != 0
        }
        Format::Decimal | Format::Exponent => {
            let scale = exponent - i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX / 2);
            length <= 18
                && scale >= -9
                && scale % 3 == 0
                && !digits.ends_with("000")
                && !digits.starts_with('0')
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0", "0")]
    #[case("0.0", "0")]
    #[case("00", "0")]
    #[case("-0", "0")]
    #[case("1", "1")]
    #[case("0.5", "500m")]
    #[case("1.5", "1500m")]
    #[case("0.1", "100m")]
    #[case("100m", "100m")]
    #[case("1000m", "1")]
    #[case("2000m", "2")]
    #[case("1024", "1024")]
    #[case("1000", "1k")]
    #[case("1000k", "1M")]
    #[case("1024Mi", "1Gi")]
    #[case("1024Ki", "1Mi")]
    #[case("100Mi", "100Mi")]
    #[case("1.5Gi", "1536Mi")]
    #[case("0.5Gi", "512Mi")]
    #[case("0.5Ki", "512")]
    #[case("0.0001Ki", "102400u")]
    #[case("1500Mi", "1500Mi")]
    #[case("8Gi", "8Gi")]
    #[case("64Gi", "64Gi")]
    #[case("1e3", "1e3")]
    #[case("1E", "1E")]
    #[case("12e6", "12e6")]
    #[case("10e5", "1e6")]
    #[case("1e-3", "1e-3")]
    #[case("1.500", "1.500")]
    #[case("+1", "+1")]
    #[case("-1.5", "-1500m")]
    #[case("0.0000000001", "1n")]
    #[case("1n", "1n")]
    #[case("1234567u", "1234567u")]
    #[case("16Ei", "9223372036854775807")]
    fn written_as_the_server_writes_it(#[case] given: &str, #[case] wanted: &str) {
        assert_eq!(canonical(given).unwrap(), wanted);
    }

    #[rstest]
    #[case("", QuantityError::Format)]
    #[case("abc", QuantityError::Format)]
    #[case("1x", QuantityError::Format)]
    #[case("1 Gi", QuantityError::Format)]
    #[case(" 1Gi", QuantityError::Format)]
    #[case("1Gi ", QuantityError::Format)]
    #[case("1KK", QuantityError::Suffix)]
    #[case("1K", QuantityError::Suffix)]
    #[case("1mi", QuantityError::Suffix)]
    #[case("1e", QuantityError::Suffix)]
    #[case("k", QuantityError::Numeric)]
    #[case(".", QuantityError::Numeric)]
    #[case("1.2.3", QuantityError::Format)]
    fn what_is_no_quantity_is_told_apart(#[case] given: &str, #[case] wanted: QuantityError) {
        assert_eq!(given.parse::<Quantity>().unwrap_err(), wanted);
    }

    #[test]
    fn sums_and_comparisons_are_exact_across_notations() {
        let q = |s: &str| s.parse::<Quantity>().unwrap();
        assert_eq!(q("0.1").plus(q("200m")).to_string(), "300m");
        assert_eq!(q("1Gi"), q("1073741824"));
        assert!(q("1G") < q("1Gi"));
        assert_eq!(q("1Gi").minus(q("512Mi")).to_string(), "512Mi");
        assert_eq!(q("1500m").value(), 2);
        assert_eq!(q("1500u").milli_value(), 2);
        assert_eq!(q("1Ei").milli_value(), (1 << 60) * 1000);
        assert_eq!(q("1500u").rounded_to_milli().to_string(), "2m");
    }

    proptest! {
        #[test]
        fn the_canonical_form_has_the_same_amount_and_is_stable(
            whole in 0_u64..10_000_000, fraction in 0_u32..1000,
            suffix in prop::sample::select(vec!["", "m", "u", "n", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-3"]),
        ) {
            let text = format!("{whole}.{fraction:03}{suffix}");
            let quantity: Quantity = text.parse().unwrap();
            let shown = quantity.to_string();
            let again: Quantity = shown.parse().unwrap();
            prop_assert_eq!(quantity, again);
            prop_assert_eq!(again.to_string(), shown);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[-+0-9.eEinumkKMGTPx ]{0,24}") {
            let _ = canonical(&text);
        }
    }
}
