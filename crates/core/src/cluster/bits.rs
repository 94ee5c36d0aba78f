//! A set of small numbers, such as the positions of nodes: one bit for each, so that sets of thousands are joined and cut in no time.

/// Numbers below a limit that all sets of one kind share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// None of so many.
    pub fn none(of: usize) -> Self {
        Self(vec![0; of.div_ceil(64)])
    }

    /// All of so many for which this holds.
    pub fn of(count: usize, holds: impl Fn(usize) -> bool) -> Self {
        let mut bits = Self::none(count);
        for at in (0..count).filter(|at| holds(*at)) {
            bits.add(at);
        }
        bits
    }

    /// Puts one in.
    pub fn add(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Whether it is in.
    pub fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    /// Leaves only what is in both.
    pub fn keep(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= other);
    }

    /// Takes out what is in the other.
    pub fn less(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= !other);
    }

    /// What is in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.keep(other);
        both
    }

    /// How many are in.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Each that is in, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_joined_cut_and_counted_across_words() {
        let even = Bits::of(200, |at| at % 2 == 0);
        let third = Bits::of(200, |at| at % 3 == 0);
        assert_eq!(
            even.common(&third).iter().collect::<Vec<_>>(),
            (0..200).filter(|at| at % 6 == 0).collect::<Vec<_>>()
        );
        let mut odd = Bits::of(200, |_| true);
        odd.less(&even);
        assert_eq!((odd.count(), odd.has(199), odd.has(198), odd.has(4000)), (100, true, false, false));
    }
}
