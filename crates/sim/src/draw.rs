//! All chance, from one seed. Each number belongs to a name, so that what one actor draws never shifts what another draws.

use evac_world::random::stable_hash;

/// A number for a name.
pub fn number(seed: u64, name: &[&str]) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ stable_hash(name);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number from 0 to 1, without 1.
pub fn share(seed: u64, name: &[&str]) -> f64 {
    (number(seed, name) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number from `low` to `high`, without `high`.
pub fn between(seed: u64, name: &[&str], low: u64, high: u64) -> u64 {
    low + number(seed, name) % (high - low).max(1)
}

/// One of several.
pub fn one_of<'a, T>(seed: u64, name: &[&str], all: &'a [T]) -> Option<&'a T> {
    all.get(between(seed, name, 0, all.len() as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_belong_to_their_seed_and_their_name() {
        assert_eq!(number(1, &["a", "2"]), number(1, &["a", "2"]));
        assert_ne!(number(1, &["a", "2"]), number(2, &["a", "2"]));
        assert_ne!(number(1, &["a", "2"]), number(1, &["a2"]));
    }

    #[test]
    fn neighbouring_seeds_have_nothing_in_common() {
        let hits = (0..10_000).filter(|seed| share(*seed, &["fault"]) < 0.1).count();
        assert!((900..1100).contains(&hits), "{hits}");
        let both =
            (0..10_000).filter(|seed| share(*seed, &["x"]) < 0.1 && share(seed + 1, &["x"]) < 0.1).count();
        assert!((60..140).contains(&both), "{both}");
    }
}
