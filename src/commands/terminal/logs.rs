//! Logs on standard error, such as `DAPO_LOG=debug` for every phase.

use crate::commands::output;
use tracing_subscriber::EnvFilter;

/// Such as `debug` or `dapo_trainer::training=debug`.
pub const VARIABLE: &str = "DAPO_LOG";

/// Default: warnings. A wrong filter is reported and ignored.
pub fn start() {
    let asked = std::env::var(VARIABLE).ok().filter(|asked| !asked.is_empty());
    let filter = asked.as_deref().unwrap_or("warn");
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|error| {
        output::tell(format!("warning: {VARIABLE}={filter:?}: {error}"));
        EnvFilter::new("warn")
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colour())
        .with_target(false)
        .log_internal_errors(false)
        .init();
}
