//! Integration tests: one binary, one module a concern.

mod adamw;
mod bad_input;
mod commands;
mod config;
mod data;
mod effects;
mod experiments;
mod fuzz;
mod golden;
mod golden_data;
mod grade;
mod hostile;
mod housekeeping;
mod hygiene;
mod interruption;
mod layers;
mod own_task;
mod plan;
mod qwen2;
mod report;
mod repository;
mod run_fixture;
mod train;
mod update;
mod verify;
