//! `--dry-run` as kubectl reads it, with its older spellings.

use clap::Args;

use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DryRunArg {
    #[default]
    None,
    Client,
    Server,
}

impl DryRunArg {
    pub fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// The flag for all verbs that change nodes.
#[derive(Debug, Clone, Args, Default)]
pub struct DryRunFlag {
    /// Try without changing anything: client only judges, server also asks the server about every step (a failover only judges)
    #[arg(
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = BARE,
        default_value = "none",
        hide_default_value = true,
        value_name = "client|server",
        help_heading = "How to go about it",
        value_parser = Spelling::parse
    )]
    dry_run: Spelling,
}

/// What kubectl, too, puts in the place of a missing value.
const BARE: &str = "unchanged";

impl DryRunFlag {
    /// What was asked for. An outdated spelling is remarked on in kubectl's words.
    pub fn how(&self) -> DryRunArg {
        if let Some(remark) = &self.dry_run.remark {
            output::warning(remark);
        }
        self.dry_run.how
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Spelling {
    how: DryRunArg,
    remark: Option<String>,
}

impl Spelling {
    fn parse(text: &str) -> Result<Self, String> {
        let plain = |how| Ok(Self { how, remark: None });
        let boolean = |how, word: &str| {
            let remark = format!(
                "--dry-run={text} is deprecated (boolean value) and can be replaced with --dry-run={word}."
            );
            Ok(Self { how, remark: Some(remark) })
        };
        match text {
            "none" => plain(DryRunArg::None),
            "client" => plain(DryRunArg::Client),
            "server" => plain(DryRunArg::Server),
            BARE => Ok(Self {
                how: DryRunArg::Client,
                remark: Some("--dry-run is deprecated and can be replaced with --dry-run=client.".into()),
            }),
            "1" | "t" | "T" | "true" | "TRUE" | "True" => boolean(DryRunArg::Client, "client"),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => boolean(DryRunArg::None, "none"),
            _ => Err(r#"must be "none", "server", or "client""#.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_spellings_work_and_are_remarked_on() {
        assert_eq!(Spelling::parse("client").unwrap(), Spelling { how: DryRunArg::Client, remark: None });
        let bare = Spelling::parse(BARE).unwrap();
        assert_eq!(bare.how, DryRunArg::Client);
        assert_eq!(
            bare.remark.as_deref(),
            Some("--dry-run is deprecated and can be replaced with --dry-run=client.")
        );
        let off = Spelling::parse("false").unwrap();
        assert_eq!(off.how, DryRunArg::None);
        assert!(off.remark.unwrap().contains("--dry-run=none"));
        assert!(Spelling::parse("maybe").is_err());
    }
}
