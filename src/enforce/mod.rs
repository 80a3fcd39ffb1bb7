//! Executes a plan, stage by stage.
