//! What happened, as values, then text or JSON.

mod doctor;
mod explain;
mod run;
mod text;

pub use doctor::{doctor_json, doctor_text};
pub use explain::{decision_json, explain_json, explain_text};
pub use run::{RunReport, before_lines, dry_run_lines, live_lines};
pub use text::one_line;
