//! Flags that several verbs have, and what they give.

pub mod bounds;
pub mod declared;
pub mod experiment;
pub mod grading;
pub mod policy;
pub mod prompt;
pub mod seeds;
pub mod tracking;
pub mod wide;
