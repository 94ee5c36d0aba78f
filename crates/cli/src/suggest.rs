//! The name that was probably meant, where there is none as it was typed.

use evac_core::cluster::natural::natural;
use evac_engine::{Http, nodes};

/// Names less alike than this are others. clap suggests commands and flags by the same measure.
const ALIKE: f64 = 0.7;

/// `did you mean node-1?`, if a node has a name like this one and can be read.
pub async fn node(http: &Http, typed: &str) -> Option<String> {
    let known = nodes::by_selector(http, "", 500).await.ok()?;
    let names = known.iter().map(|node| node.name.as_str());
    nearest(typed, names).map(|name| format!("did you mean {name}?"))
}

/// The name most like this one; of several the first in natural order.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut alike: Vec<(f64, &str)> = names.map(|name| (strsim::jaro(typed, name), name)).collect();
    alike.retain(|(likeness, _)| *likeness > ALIKE);
    alike.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| natural(a, b)));
    alike.first().map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_name_is_suggested_and_of_equals_the_first_as_people_count() {
        let names = ["node-10", "node-2", "node-1", "gpu-1"];
        assert_eq!(nearest("node-9", names.into_iter()), Some("node-1"));
        assert_eq!(nearest("nod-2", names.into_iter()), Some("node-2"));
        assert_eq!(nearest("gpu1", names.into_iter()), Some("gpu-1"));
        assert_eq!(nearest("nowhere", names.into_iter()), None, "nothing is like it");
    }
}
