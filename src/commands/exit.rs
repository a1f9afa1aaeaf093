//! Exit codes: one table for every verb.

use crate::checkpoint;
use crate::config::extends;
use crate::data;
use crate::eval;
use crate::files;
use crate::prompt;
use crate::rollout::generate;
use crate::run;
use crate::tables;
use crate::train;

/// Done.
pub const SUCCESS: u8 = 0;
/// A bug, or the machine failed.
pub const BUG: u8 = 1;
/// Arguments that do not fit; also clap's.
pub const USAGE: u8 = 2;
/// A configuration, a model, or data that cannot be used.
pub const INVALID: u8 = 3;
/// Something does not agree with its reference.
pub const MISMATCH: u8 = 4;
/// A loss or gradient was not finite.
pub const DIVERGED: u8 = 5;

/// Arguments that clap accepts and the verb cannot use.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Input that a verb itself refuses.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

/// The exit code of an error: by what in its chain of causes the user can mend.
pub fn code(error: &anyhow::Error) -> u8 {
    let has = |test: fn(&(dyn std::error::Error + 'static)) -> bool| error.chain().any(test);
    if has(|cause| cause.is::<Usage>()) {
        USAGE
    } else if has(|cause| matches!(cause.downcast_ref(), Some(train::Error::Diverged { .. }))) {
        DIVERGED
    } else if has(is_input) {
        INVALID
    } else {
        BUG
    }
}

fn is_input(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<Invalid>()
        || cause.is::<files::Error>()
        || cause.is::<tables::Error>()
        || cause.is::<extends::Error>()
        || cause.is::<toml::de::Error>()
        || cause.is::<data::Error>()
        || cause.is::<prompt::Error>()
        || cause.is::<checkpoint::Error>()
        || cause.is::<generate::Error>()
        || cause.is::<eval::Error>()
        || cause.is::<train::Error>()
        || cause.is::<run::Error>()
}
