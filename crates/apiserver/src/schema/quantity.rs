//! Resource quantities: the one form in which a server writes `1024Mi`, `0.5` and `1e3`.

/// Why a text is not a quantity, in the words a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    Decimal,
    Binary,
    Exponent,
}

/// A quantity finer than this is rounded up.
const FINEST: i32 = -9;

/// The canonical text of a quantity: largest possible suffix, no fraction, `0` for nothing.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    let (negative, digits, fraction, suffix) = split(text)?;
    let (notation, base_two, base_ten) = scale(suffix)?;
    let mut mantissa: i128 = 0;
    for c in digits.bytes().chain(fraction.bytes()) {
        let digit = i128::from(c - b'0');
        match mantissa.checked_mul(10).and_then(|m| m.checked_add(digit)) {
            Some(next) => mantissa = next,
            // Far beyond what a quantity can hold; nothing is won by rewriting it.
            None => return Ok(text.to_owned()),
        }
    }
    let mut exponent = base_ten - fraction.len() as i32;
    let Some(shifted) = mantissa.checked_shl(base_two).filter(|s| s >> base_two == mantissa) else {
        return Ok(text.to_owned());
    };
    mantissa = shifted;
    while exponent < FINEST {
        mantissa = mantissa / 10 + i128::from(mantissa % 10 != 0);
        exponent += 1;
    }
    if mantissa == 0 {
        return Ok("0".to_owned());
    }
    let sign = if negative { "-" } else { "" };
    let body = match notation {
        Notation::Binary => binary(mantissa, exponent),
        other => decimal(mantissa, exponent, other),
    };
    Ok(body.map_or_else(|| text.to_owned(), |body| format!("{sign}{body}")))
}

type Parts<'a> = (bool, &'a str, &'a str, &'a str);

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (negative, rest) = match text.as_bytes().first() {
        None => return Err(QuantityError::Format),
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, rest) = rest.split_at(end);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        None => ("", rest),
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest.split_at(end)
        }
    };
    let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let tail = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if !tail.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    if digits.is_empty() && fraction.is_empty() {
        return Err(if suffix.is_empty() { QuantityError::Format } else { QuantityError::Number });
    }
    Ok((negative, digits, fraction, suffix))
}

/// Notation, power of two and power of ten of a suffix.
fn scale(suffix: &str) -> Result<(Notation, u32, i32), QuantityError> {
    let found = match suffix {
        "Ki" => (Notation::Binary, 10, 0),
        "Mi" => (Notation::Binary, 20, 0),
        "Gi" => (Notation::Binary, 30, 0),
        "Ti" => (Notation::Binary, 40, 0),
        "Pi" => (Notation::Binary, 50, 0),
        "Ei" => (Notation::Binary, 60, 0),
        "n" => (Notation::Decimal, 0, -9),
        "u" => (Notation::Decimal, 0, -6),
        "m" => (Notation::Decimal, 0, -3),
        "" => (Notation::Decimal, 0, 0),
        "k" => (Notation::Decimal, 0, 3),
        "M" => (Notation::Decimal, 0, 6),
        "G" => (Notation::Decimal, 0, 9),
        "T" => (Notation::Decimal, 0, 12),
        "P" => (Notation::Decimal, 0, 15),
        "E" => (Notation::Decimal, 0, 18),
        other => {
            let exponent = other.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
            let power: i32 = exponent.parse().map_err(|_| QuantityError::Suffix)?;
            if power.abs() > 100 {
                return Err(QuantityError::Suffix);
            }
            (Notation::Exponent, 0, power)
        }
    };
    Ok(found)
}

fn decimal(mut mantissa: i128, mut exponent: i32, notation: Notation) -> Option<String> {
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    // Suffixes stand for every third power of ten.
    while exponent.rem_euclid(3) != 0 {
        mantissa = mantissa.checked_mul(10)?;
        exponent -= 1;
    }
    if notation == Notation::Exponent {
        return Some(if exponent == 0 { mantissa.to_string() } else { format!("{mantissa}e{exponent}") });
    }
    while exponent > 18 {
        mantissa = mantissa.checked_mul(1000)?;
        exponent -= 3;
    }
    let suffix = match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        0 => "",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => return None,
    };
    Some(format!("{mantissa}{suffix}"))
}

fn binary(mantissa: i128, exponent: i32) -> Option<String> {
    let factor = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let small =
        if exponent < 0 { mantissa < factor.checked_mul(1024)? } else { mantissa < 1024 && exponent == 0 };
    if small {
        return decimal(mantissa, exponent, Notation::Decimal);
    }
    let mut value = if exponent < 0 {
        mantissa / factor + i128::from(mantissa % factor != 0)
    } else {
        mantissa.checked_mul(factor)?
    };
    let mut steps = 0;
    while value % 1024 == 0 && steps < 6 {
        value /= 1024;
        steps += 1;
    }
    let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(steps)?;
    Some(format!("{value}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("1024Mi", "1Gi")]
    #[case("1.5Gi", "1536Mi")]
    #[case("0.5Ki", "512")]
    #[case("1000m", "1")]
    #[case("1500m", "1500m")]
    #[case("0.5", "500m")]
    #[case("1000", "1k")]
    #[case("1000000k", "1G")]
    #[case("0", "0")]
    #[case("0Gi", "0")]
    #[case("-1024Ki", "-1Mi")]
    #[case("+5", "5")]
    #[case("1e3", "1e3")]
    #[case("12E2", "1200")]
    #[case(".5", "500m")]
    #[case("5.", "5")]
    #[case("0.1n", "1n")]
    #[case("100Ki", "100Ki")]
    fn a_quantity_is_written_in_one_way(#[case] given: &str, #[case] written: &str) {
        assert_eq!(canonical(given).as_deref(), Ok(written));
        assert_eq!(canonical(written).as_deref(), Ok(written));
    }

    #[rstest]
    #[case("", QuantityError::Format)]
    #[case("abc", QuantityError::Format)]
    #[case("1x", QuantityError::Format)]
    #[case("1KI", QuantityError::Format)]
    #[case("1ki", QuantityError::Suffix)]
    #[case("m", QuantityError::Number)]
    fn what_is_no_quantity_is_refused(#[case] given: &str, #[case] error: QuantityError) {
        assert_eq!(canonical(given), Err(error));
    }
}
