//! Integration tests: one binary, one module a concern.

mod adamw;
mod commands;
mod config;
mod data;
mod effects;
mod experiments;
mod golden;
mod golden_data;
mod grade;
mod hygiene;
mod interruption;
mod layers;
mod qwen2;
mod report;
mod repository;
mod run_fixture;
mod train;
mod update;
