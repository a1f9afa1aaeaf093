//! What a terminal shows and sends: text and JSON, progress, logs, signals, exit codes.

pub mod exit;
pub mod output;
pub mod interrupt;
pub mod logs;
pub mod progress;
pub mod course;
pub mod effects;
pub mod gate_file;
