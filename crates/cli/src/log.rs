//! The log of long-running verbs: lines for people, or JSON for machines, on stderr.

use std::str::FromStr as _;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::exit::Failure;
use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Lines for people, or one JSON object a line
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// What is logged: a level (error, warn, info, debug, trace), or levels by module such as warn,evac_engine=debug
    #[arg(long, value_name = "FILTER", env = "EVAC_LOG", default_value = "info")]
    pub log: String,
}

/// Whether the log is for machines; otherwise words go to people directly.
static RECORDS: AtomicBool = AtomicBool::new(false);

impl LogArgs {
    /// Begins to log. A second call changes nothing.
    pub fn begin(&self) -> Result<(), Failure> {
        let filter = EnvFilter::from_str(&self.log)
            .map_err(|error| Failure::usage(format!("--log: '{}' is not a filter: {error}", self.log)))?;
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let begun = match self.log_format {
            LogFormat::Json => builder.json().flatten_event(true).try_init(),
            LogFormat::Text => builder.with_target(false).with_ansi(output::is_interactive()).try_init(),
        };
        RECORDS.store(begun.is_ok() && self.log_format == LogFormat::Json, Ordering::Relaxed);
        Ok(())
    }
}

/// Tells how it goes: as a record where records are wanted, otherwise as a line.
pub fn say(text: &str) {
    if RECORDS.load(Ordering::Relaxed) {
        tracing::info!(target: "evac", "{}", output::clean(text));
    } else {
        output::talk(&format!("operator: {text}"));
    }
}
