//! What is written on an instance that is a node of a tenant cluster, and how far the drain of that node is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::key::Uid;

/// Texts of tenants go to the terminals of others; more than this of one is noise.
const LONGEST_TEXT: usize = 400;

/// How far it is, and until when it may take.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TenantProgress {
    /// The cluster of the tenant.
    pub cluster: String,
    /// The node in it that the instance is.
    pub node: String,
    /// The pods that still have to leave it; missing while the tenant has not been reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<usize>,
    /// The pods that have to leave it, with those that have left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// What is in the way, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker: Option<String>,
    /// When the instance is deleted at the latest.
    pub deadline: Timestamp,
}

impl TenantProgress {
    /// The node and how much is left on it.
    pub fn words(&self) -> String {
        let place = format!("node {} of cluster {}", plain(&self.node), plain(&self.cluster));
        match (self.left, self.total) {
            (Some(0), _) => format!("{place} is empty"),
            (Some(left), Some(total)) => format!("{place} has {left} of {total} pods left"),
            _ => format!("{place} is looked for"),
        }
    }

    /// What is in the way, fit for a terminal.
    pub fn blocker(&self) -> Option<String> {
        self.blocker.as_deref().map(plain)
    }
}

/// What is written on an instance about its tenant. Texts are as found: what cannot be read is an answer, too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Marks {
    /// When it is deleted at the latest, as evac wrote it.
    pub deadline: Option<String>,
    /// The same as Cluster API's provider for KubeVirt wrote it; counts where evac's is missing.
    pub capk_deadline: Option<String>,
    /// How long its tenant gets, such as `30m`.
    pub timeout: Option<String>,
    /// `migrate-first` or `drain`.
    pub policy: Option<String>,
    /// There is a note about progress, even if it cannot be read.
    pub has_progress: bool,
    /// How far the drain of its node is, if the note can be read.
    pub progress: Option<TenantProgress>,
    /// The instance for which its node was cordoned.
    pub cordoned: Option<Uid>,
}

/// A text that a tenant wrote, fit for a terminal: one line without control characters, and not too long.
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
        let progress = |left, total| TenantProgress {
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
