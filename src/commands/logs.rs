//! Logs for whoever looks into a run: `DAPO_LOG=debug` tells every phase on standard error.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// The environment variable that says what is logged, such as `debug` or `dapo::run=info`.
pub const VARIABLE: &str = "DAPO_LOG";

/// Logs what [`VARIABLE`] asks for, warnings otherwise. A filter that cannot be read is told and
/// left out.
pub fn start() {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let filter = EnvFilter::try_new(&asked).unwrap_or_else(|error| {
        eprintln!("warning: {VARIABLE}={asked:?}: {error}");
        EnvFilter::new("warn")
    });
    let filter = if asked.is_empty() { EnvFilter::new("warn") } else { filter };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .init();
}
