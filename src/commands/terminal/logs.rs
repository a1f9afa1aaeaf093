//! Logs on standard error, such as `DAPO_LOG=debug` for every phase.

use crate::commands::output;
use std::fmt;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Such as `debug` or `dapo_trainer::training=debug`.
pub const VARIABLE: &str = "DAPO_LOG";

/// Default: warnings, as those of the commands. A wrong filter is reported and ignored.
pub fn start() {
    let asked = std::env::var(VARIABLE).ok().filter(|asked| !asked.is_empty());
    let filter = asked.as_deref().unwrap_or("warn");
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|error| {
        output::tell(format!("warning: {VARIABLE}={filter:?}: {error}"));
        EnvFilter::new("warn")
    });
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colour())
        .with_target(false)
        .log_internal_errors(false);
    match asked {
        Some(_) => logs.init(),
        None => logs.event_format(PlainWarning).init(),
    }
}

struct PlainWarning;

impl<S, N> FormatEvent<S, N> for PlainWarning
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str("warning: ")?;
        context.format_fields(writer.by_ref(), event)?;
        writer.write_char('\n')
    }
}
