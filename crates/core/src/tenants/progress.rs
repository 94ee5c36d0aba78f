//! How far the drain of a tenant's node is, in a note on the instance that the drain of the host reads.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Texts of tenants go to the terminals of others; more than this of one is noise.
const LONGEST_TEXT: usize = 400;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Progress {
    pub cluster: String,
    pub node: String,
    /// Missing while the tenant has not been reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// What is in the way, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker: Option<String>,
    pub deadline: Timestamp,
}

impl Progress {
    /// The node and how much is left on it.
    pub fn words(&self) -> String {
        let place = format!("node {} of cluster {}", plain(&self.node), plain(&self.cluster));
        match (self.left, self.total) {
            (Some(0), _) => format!("{place} is empty"),
            (Some(left), Some(total)) => format!("{place} has {left} of {total} pods left"),
            _ => format!("{place} is looked for"),
        }
    }

    pub fn blocker(&self) -> Option<String> {
        self.blocker.as_deref().map(plain)
    }
}

/// A text of somebody else, fit for a terminal: one line without control characters, and not too long.
pub fn plain(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .map(|c| if c.is_control() || is_invisible(c) { ' ' } else { c })
        .take(LONGEST_TEXT)
        .collect();
    if text.chars().nth(LONGEST_TEXT).is_some() {
        shown.push('…');
    }
    shown
}

/// Characters that turn or hide what stands around them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_tenants_cannot_move_the_cursor_or_flood_the_screen() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{202e}d"), "a [2Jb c d");
        assert_eq!(plain(&"x".repeat(1000)).chars().count(), LONGEST_TEXT + 1);
        assert_eq!(plain("pod shop/web-1 waits"), "pod shop/web-1 waits");
    }

    #[test]
    fn progress_is_told_in_the_words_of_the_place() {
        let progress = |left, total| Progress {
            cluster: "blue".into(),
            node: "worker-1".into(),
            left,
            total,
            blocker: None,
            deadline: Timestamp::UNIX_EPOCH,
        };
        assert_eq!(progress(Some(2), Some(5)).words(), "node worker-1 of cluster blue has 2 of 5 pods left");
        assert_eq!(progress(Some(0), Some(5)).words(), "node worker-1 of cluster blue is empty");
        assert_eq!(progress(None, None).words(), "node worker-1 of cluster blue is looked for");
    }
}
