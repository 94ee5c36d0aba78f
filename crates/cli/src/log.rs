//! The log of long-running verbs: lines for people, or JSON for machines, on stderr.

use std::str::FromStr as _;
use std::sync::atomic::{AtomicBool, Ordering};

use std::fmt::Write as _;
use std::io::{self, Write};

use clap::{Args, ValueEnum};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

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
            LogFormat::Text => {
                let lines = builder.with_writer(|| OneLine(io::stderr()));
                lines.with_target(false).with_ansi(output::is_interactive()).try_init()
            }
        };
        RECORDS.store(begun.is_ok() && self.log_format == LogFormat::Json, Ordering::Relaxed);
        Ok(())
    }
}

/// From this level on `-v` shows requests, as kubectl does.
const SHOWS_REQUESTS: u8 = 6;

/// Shows every request and its answer on stderr, in the form of kubectl's own log, if `level` asks for that. Headers, and with them tokens, are
/// never shown.
pub fn requests(level: u8) {
    if level >= SHOWS_REQUESTS {
        let filter = EnvFilter::new(format!("off,{}=debug", evac_engine::http::REQUESTS));
        let builder = tracing_subscriber::fmt().with_env_filter(filter);
        let _ = builder.event_format(Klog).with_writer(|| OneLine(output::Talk)).try_init();
    }
}

/// `I1118 04:05:06.789012   4711 requests] "Response" verb="GET" url="…" status="200 OK" milliseconds=3`
struct Klog;

impl<S, N> FormatEvent<S, N> for Klog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let at = evac_clock::time_of_day().strftime("%m%d %H:%M:%S%.6f");
        writeln!(writer, "I{at} {:>7} requests] {:?}{}", std::process::id(), fields.message, fields.others)
    }
}

/// The message of a record, and its fields as `name="value"`.
#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            let _ = write!(self.others, " {}={value:?}", field.name());
        }
    }
}

/// Writes each record as one line. The messages of servers in it may contain line breaks, and what follows one would look like a record of ours.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// A record comes as a whole, with the line break at its end.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let body = record.strip_suffix(b"\n").unwrap_or(record);
        let mut line: Vec<u8> =
            body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        line.extend(&record[body.len()..]);
        self.0.write_all(&line)?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_whatever_a_server_says_in_it() {
        let mut written = Vec::new();
        let record = b"INFO cannot read error=gone\nINFO leads me=mallory\r\n";
        OneLine(&mut written).write_all(record).unwrap();
        assert_eq!(written, b"INFO cannot read error=gone INFO leads me=mallory \n");
    }
}
