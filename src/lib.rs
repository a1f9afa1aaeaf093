//! The reference harness for DAPO (arXiv 2503.14476).
//!
//! Modules stand in pipeline order, and a module uses only modules declared above it:
//!
//! ```text
//! data → prompt → rollout → reward → overlong → dynamic sampling → advantage → batch
//!      → objective → optimizer → checkpoint → eval → run folder → stats → report
//! ```
//!
//! Each stage takes values and returns values; [`train`] alone closes the loop.

// foundation
pub mod visible;
pub mod contained;
pub mod halving;
pub mod records;
pub mod files;
pub mod apart;
pub mod tables;
pub mod rng;
pub mod config;
pub mod run_folder;
pub mod ledger;
pub mod environment;
// pipeline
pub mod data;
pub mod chat_template;
pub mod prompt;
pub mod workers;
pub mod numerics;
pub mod model;
pub mod rollout;
pub mod reward;
pub mod audit;
pub mod dapo;
pub mod batch;
pub mod optimizer;
pub mod checkpoint;
pub mod policy;
pub mod frozen;
pub mod update;
pub mod stats;
pub mod eval;
pub mod effects;
pub mod pretrain;
pub mod train;
pub mod run;
pub mod plan;
pub mod bench;
// reading runs
pub mod cell;
pub mod grid;
pub mod ablate;
pub mod study;
pub mod comparison;
pub mod export;
pub mod attest;
pub mod housekeeping;
pub mod effect_checks;
pub mod reference;
pub mod claims;
pub mod report;
pub mod verify;
pub mod run_diff;
pub mod regress;
pub mod doctor;
pub mod exactness;
// what exists for verl's calling conventions only
pub mod verl_vectors;
pub mod commands;
