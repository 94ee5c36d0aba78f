//! String formats that the server enforces on custom resources. Other formats say nothing.

use base64::Engine as _;

/// Whether a text has the form its `format` names. Unknown formats accept everything.
pub fn holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => date_time(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "hostname" => hostname(text),
        "email" => email(text),
        "uri" => uri(text),
        "uuid" => uuid(text, None),
        "uuid3" => uuid(text, Some('3')),
        "uuid4" => uuid(text, Some('4')),
        "uuid5" => uuid(text, Some('5')),
        "duration" => duration(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        "k8s-short-name" => label(text, false) && text.len() <= 63,
        "k8s-long-name" => text.len() <= 253 && text.split('.').all(|part| label(part, false)),
        _ => true,
    }
}

fn date_time(text: &str) -> bool {
    text.len() >= 20
        && text.as_bytes().get(10).is_some_and(|b| b.eq_ignore_ascii_case(&b'T'))
        && text.parse::<jiff::Timestamp>().is_ok()
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => bits <= 32,
        Ok(std::net::IpAddr::V6(_)) => bits <= 128,
        Err(_) => false,
    }
}

fn mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn label(text: &str, upper: bool) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || (upper && b.is_ascii_uppercase());
    !text.is_empty()
        && text.bytes().all(|b| inner(b) || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn hostname(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    name.len() <= 255 && name.split('.').all(|part| part.len() <= 63 && label(part, true))
}

fn email(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.is_empty() && !text.contains(char::is_whitespace)
    })
}

fn uri(text: &str) -> bool {
    if text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
        return false;
    }
    let scheme = text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
            && !rest.is_empty()
    });
    scheme || text.starts_with('/')
}

fn uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    digits.len() == 32
        && digits.bytes().all(|b| b.is_ascii_hexdigit())
        && version.is_none_or(|v| digits.chars().nth(12) == Some(v))
        && matches!(text.len(), 32..=36)
}

/// Go's `time.ParseDuration`.
fn duration(text: &str) -> bool {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    if body == "0" {
        return true;
    }
    let mut rest = body;
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - digits.len()];
        if number.is_empty() || number == "." || number.matches('.').count() > 1 {
            return false;
        }
        let unit = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].iter().find(|u| digits.starts_with(**u));
        let Some(unit) = unit else { return false };
        rest = &digits[unit.len()..];
    }
    !body.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("date-time", "2026-01-01T00:00:00Z", true)]
    #[case("date-time", "2026-01-01", false)]
    #[case("date", "2026-02-30", false)]
    #[case("ipv4", "10.0.0.256", false)]
    #[case("cidr", "10.0.0.0/33", false)]
    #[case("cidr", "fd00::/64", true)]
    #[case("duration", "1h30m", true)]
    #[case("duration", "90", false)]
    #[case("uuid", "123e4567-e89b-12d3-a456-426614174000", true)]
    #[case("uuid4", "123e4567-e89b-12d3-a456-426614174000", false)]
    #[case("hostname", "-bad.example", false)]
    #[case("mac", "02:00:00:00:00:01", true)]
    #[case("uri", "https://example.com/a", true)]
    #[case("uri", "no scheme", false)]
    #[case("nobody-knows", "anything", true)]
    fn formats_accept_what_they_name(#[case] format: &str, #[case] text: &str, #[case] fits: bool) {
        assert_eq!(holds(format, text), fits);
    }
}
