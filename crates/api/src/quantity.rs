//! Quantities ("500m", "32Gi") as numbers.

/// What a quantity says, in thousandths, rounded up; `None` when it is no quantity.
pub fn parse(text: &str) -> Option<i128> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut mantissa: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut scale: i128 = 1;
    for digit in fraction.chars().take(12) {
        mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(digit.to_digit(10)?))?;
        scale *= 10;
    }
    let (up, down) = multiplier(suffix)?;
    let top = mantissa.checked_mul(up)?.checked_mul(1000)?;
    let bottom = scale.checked_mul(down)?;
    let rounded = if top % bottom == 0 { top / bottom } else { top / bottom + 1 };
    Some(sign * rounded)
}

fn multiplier(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            if power >= 0 { (factor, 1) } else { (1, factor) }
        }
    })
}

/// Resource name → thousandths of its unit.
pub use evac_core::place::Amounts;

pub fn add(into: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *into.entry(name.clone()).or_default() += amount;
    }
}

fn raise(into: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let slot = into.entry(name.clone()).or_default();
        *slot = (*slot).max(*amount);
    }
}

/// What each part of a pod asks for.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    pub containers: Vec<Amounts>,
    /// In their order, and whether each goes on running beside the containers.
    pub init: Vec<(Amounts, bool)>,
    /// What the pod asks for as a whole, which replaces the sum of its parts.
    pub whole: Amounts,
    pub overhead: Amounts,
}

impl Requests {
    /// What the pod takes of a node, counted as the scheduler does: the larger of its containers together and any moment of its init phase,
    /// side cars counted as containers from where they start, plus overhead.
    pub fn taken(self) -> Amounts {
        let mut running = Amounts::new();
        for container in &self.containers {
            add(&mut running, container);
        }
        let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
        for (container, stays) in &self.init {
            let mut moment = container.clone();
            add(&mut moment, &sidecars);
            if *stays {
                add(&mut running, container);
                sidecars.clone_from(&moment);
            }
            raise(&mut peak, &moment);
        }
        raise(&mut running, &peak);
        running.extend(self.whole);
        add(&mut running, &self.overhead);
        running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_thousandths() {
        for (text, milli) in [
            ("1", 1000),
            ("500m", 500),
            ("0.1", 100),
            ("1.5Gi", 1_610_612_736_000),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
            ("1n", 1),
            ("-2", -2000),
        ] {
            assert_eq!(parse(text), Some(milli), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_not_read() {
        for text in ["", "Gi", "1x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
