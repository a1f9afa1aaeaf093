//! `--wide`, of verbs whose tables leave columns out on a narrow terminal.

use crate::commands::output;
use std::sync::atomic::Ordering;

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct WideArg {
    /// Show all columns of tables, even if the terminal is too narrow for them.
    #[arg(long)]
    wide: bool,
}

impl WideArg {
    pub fn apply(self) {
        output::WIDE.store(self.wide, Ordering::Relaxed);
    }
}
