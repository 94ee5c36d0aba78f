//! One seed, and from it an independent stream of numbers per entity.
//!
//! A stream belongs to a name. What one entity draws never shifts what another draws, so adding a pod
//! to a scenario does not change the fate of the others.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The letters Kubernetes uses for generated names: no vowels, nothing that looks like a digit.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a over the parts, with a separator so that ("ab","c") differs from ("a","bc").
pub fn stable_hash(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.as_bytes().iter().chain(&[0xff]) {
            hash ^= u64::from(*byte);
            hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    // FNV leaves the high bits of short inputs poorly mixed.
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

fn stream(seed: u64, entity: &str) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed ^ stable_hash(&[entity]))
}

fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The first number of an entity's stream, between `low` and `high`: the same each time it is asked.
pub fn between(seed: u64, entity: &str, low: f64, high: f64) -> f64 {
    low + (high - low) * unit(&mut stream(seed, entity))
}

/// A number that orders equals without favouring the first.
pub fn tie_break(seed: u64, entity: &str, candidate: &str) -> u64 {
    stable_hash(&[&seed.to_string(), entity, candidate])
}

/// Eight letters made from a hash, safe in a label and in a name.
pub fn letters(hash: u64, count: usize) -> String {
    let mut rest = hash;
    (0..count)
        .map(|_| {
            let letter = LETTERS[(rest % LETTERS.len() as u64) as usize];
            rest /= LETTERS.len() as u64;
            char::from(letter)
        })
        .collect()
}

/// Streams that remember how far they have been read.
#[derive(Debug)]
pub struct Streams {
    seed: u64,
    open: BTreeMap<String, ChaCha8Rng>,
}

impl Streams {
    pub fn new(seed: u64) -> Self {
        Self { seed, open: BTreeMap::new() }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A fresh name suffix for something `entity` creates.
    pub fn suffix(&mut self, entity: &str) -> String {
        let seed = self.seed;
        let rng = self.open.entry(entity.to_owned()).or_insert_with(|| stream(seed, entity));
        letters(rng.next_u64(), 5)
    }

    pub fn forget(&mut self, entity: &str) {
        self.open.remove(entity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_name_give_the_same_numbers() {
        assert_eq!(between(7, "a", 0.0, 1.0).to_bits(), between(7, "a", 0.0, 1.0).to_bits());
        assert_ne!(between(7, "a", 0.0, 1.0).to_bits(), between(8, "a", 0.0, 1.0).to_bits());
    }

    #[test]
    fn streams_do_not_disturb_each_other() {
        let mut alone = Streams::new(1);
        let first = [alone.suffix("rs-a"), alone.suffix("rs-a")];
        let mut mixed = Streams::new(1);
        let second = [mixed.suffix("rs-a"), {
            mixed.suffix("rs-b");
            mixed.suffix("rs-a")
        }];
        assert_eq!(first, second);
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn numbers_stay_in_their_range() {
        for i in 0..1000 {
            let x = between(3, &format!("pod-{i}"), 0.2, 1.0);
            assert!((0.2..1.0).contains(&x));
        }
    }
}
