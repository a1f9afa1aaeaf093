//! One run: what is asked, what is kept, problems, policies, and Algorithm 1.

pub use dapo_core::{algorithm, base, numerics, statistics};

pub mod experiment; // what is asked: experiment files, identity, grids, facts about keys
pub mod records; // what is kept: run folder, ledger, tables
pub mod task; // problems in, grades out
pub mod policy; // decoder, sampling, optimizer, checkpoint
pub mod training; // Algorithm 1: step, update, evaluation, run, plan
