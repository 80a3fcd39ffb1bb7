//! Executes a plan, stage by stage.

pub mod pid1;
pub mod wire;
