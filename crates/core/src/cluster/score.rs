//! Which of the nodes that would take a pod kube-scheduler likes best: the emptier one, the preferred one, one without soft taints.
//!
//! Where nodes score alike the scheduler draws lots, and in large clusters it looks at some of them only. So the best one is where a pod is likely to go, not
//! more.

/// What a pod without a request for CPU counts for, in thousandths.
pub const UNSAID_CPU: i128 = 100;
/// What a pod without a request for memory counts for, in thousandths of bytes.
pub const UNSAID_MEMORY: i128 = 200 * 1024 * 1024 * 1000;

/// One resource of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stock {
    /// What the node has for pods.
    pub capacity: i128,
    /// What pods on it have asked for.
    pub said: i128,
    /// What a pod counts for that asks for none.
    pub unsaid: i128,
}

impl Stock {
    /// 0 to 100: the part that is free once another pod is there, beside so many.
    fn free_part(self, pods: i128, wanted: Option<i128>) -> i64 {
        let used = self.said.max(pods * self.unsaid) + wanted.unwrap_or(self.unsaid);
        if self.capacity <= 0 || used >= self.capacity {
            return 0;
        }
        i64::try_from((self.capacity - used) * 100 / self.capacity).unwrap_or(0)
    }
}

/// 0 to 100: the mean free part of CPU and memory once a pod that asks for these is there, beside so many.
pub fn emptiness(cpu: Stock, memory: Stock, pods: i128, wanted: (Option<i128>, Option<i128>)) -> i64 {
    i64::midpoint(cpu.free_part(pods, wanted.0), memory.free_part(pods, wanted.1))
}

/// 0 to 100: the weight of the preferred terms that hold, as a part of all the weight there is.
pub fn preference(terms: impl Iterator<Item = (i64, bool)>) -> i64 {
    let (mut total, mut held) = (0, 0);
    for (weight, holds) in terms {
        total += weight;
        held += if holds { weight } else { 0 };
    }
    if total == 0 { 0 } else { held * 100 / total }
}

/// 100 on a node without soft taints that are not tolerated, less with each.
pub fn soft_taints(disliked: usize) -> i64 {
    100 / (1 + i64::try_from(disliked).unwrap_or(i64::MAX - 1))
}

/// What the parts count for that depend on one pod and one node.
pub fn together(emptiness: i64, preference: i64, soft_taints: i64) -> i64 {
    emptiness + 2 * preference + 3 * soft_taints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptier_node_scores_higher_and_what_pods_do_not_ask_for_counts() {
        let stock = |said| Stock { capacity: 1000, said, unsaid: 10 };
        assert_eq!(emptiness(stock(0), stock(0), 0, (Some(100), Some(300))), 80);
        assert!(emptiness(stock(500), stock(500), 0, (Some(1), Some(1))) < 50);
        assert_eq!(emptiness(stock(0), stock(0), 49, (None, None)), 50, "49 pods and this one");
        assert_eq!(emptiness(stock(900), stock(900), 0, (Some(101), Some(200))), 0);
    }

    #[test]
    fn preferences_are_a_part_of_all_weight_and_soft_taints_cost() {
        assert_eq!(preference([(1, true), (3, false)].into_iter()), 25);
        assert_eq!(preference(std::iter::empty()), 0);
        assert_eq!((soft_taints(0), soft_taints(1), soft_taints(3)), (100, 50, 25));
    }
}
