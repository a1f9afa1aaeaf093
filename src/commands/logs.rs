//! Logs for whoever looks into a run: `DAPO_LOG=debug` tells every phase on standard error.

use crate::commands::output;
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
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colour())
        .with_target(false)
        .init();
}
