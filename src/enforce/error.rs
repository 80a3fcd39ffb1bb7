//! A step that failed: the step's own line from `explain`, what was being done, the errno, and a hint.

use super::wire::{Failure, FailureKind};
use rustix::io::Errno;
use std::fmt;

#[derive(Debug)]
pub struct StepError {
    pub step: String,
    pub cause: String,
    pub hint: Option<String>,
}

impl StepError {
    pub fn new(step: impl fmt::Display, cause: impl fmt::Display) -> StepError {
        StepError { step: step.to_string(), cause: cause.to_string(), hint: None }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> StepError {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot set the box up: {}: {}", self.step, self.cause)
    }
}

impl std::error::Error for StepError {}

impl From<StepError> for Failure {
    fn from(error: StepError) -> Failure {
        Failure { kind: FailureKind::Setup, text: error.to_string(), hints: error.hint.into_iter().collect() }
    }
}

/// What to do where user namespaces are refused.
pub const USERNS_HINT: &str = "user namespaces are blocked on this system: see `agentbox doctor` for the exact fix \
     (Ubuntu: an AppArmor profile for this one program; others: sysctl user.max_user_namespaces and \
     kernel.unprivileged_userns_clone)";

/// What an errno of clone3(2) means to the user.
pub fn clone_hint(errno: Errno) -> Option<String> {
    match errno {
        Errno::PERM | Errno::NOSPC | Errno::USERS | Errno::ACCESS => Some(if inside_a_box() {
            "this is running nested inside another sandbox: start the outer one with --nested".to_owned()
        } else {
            USERNS_HINT.to_owned()
        }),
        Errno::NOSYS | Errno::INVAL => Some(
            "clone3 or one of the namespaces is missing: nested in another sandbox, or a kernel before 5.12".into(),
        ),
        Errno::AGAIN => Some("the limit on processes or namespaces is reached".into()),
        _ => None,
    }
}

/// Is this process itself in an agentbox? Its root is a box's, with a made-up machine-id and no /etc/shadow.
fn inside_a_box() -> bool {
    rustix::thread::no_new_privs().unwrap_or(false)
}
