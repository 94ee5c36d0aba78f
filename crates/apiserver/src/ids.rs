//! Names and uids that the server makes up, from one seed: the same run gives the same names.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The letters of generated name endings: no vowels, so no words; no look-alikes.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
const NAME_LIMIT: usize = 63 - SUFFIX_LENGTH;

/// The source of made-up identifiers.
pub struct Ids(Mutex<ChaCha8Rng>);

impl Ids {
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(ChaCha8Rng::seed_from_u64(seed)))
    }

    fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut bytes);
        bytes
    }

    /// A random (version 4) uid.
    pub fn uid(&self) -> String {
        let mut b: [u8; 16] = self.bytes();
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        let hex = b.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// A name that begins with `prefix`, as `generateName` asks for.
    pub fn name(&self, prefix: &str) -> String {
        let mut name: String = prefix.chars().take(NAME_LIMIT).collect();
        let random: [u8; SUFFIX_LENGTH] = self.bytes();
        for byte in random {
            name.push(char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_identifiers() {
        let (a, b) = (Ids::seeded(7), Ids::seeded(7));
        assert_eq!(a.uid(), b.uid());
        assert_eq!(a.name("web-"), b.name("web-"));
        assert_ne!(a.uid(), Ids::seeded(8).uid());
    }

    #[test]
    fn a_generated_name_fits_a_label_value() {
        let name = Ids::seeded(1).name(&"x".repeat(100));
        assert_eq!(name.len(), 63);
    }

    #[test]
    fn a_uid_has_the_form_of_a_random_uuid() {
        let uid = Ids::seeded(3).uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert!(matches!(uid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    }
}
