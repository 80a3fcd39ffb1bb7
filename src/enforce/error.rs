//! A step that failed: the step's own line from `explain`, what was being done, the errno, and a hint.

use super::wire::{Failure, FailureKind};
use crate::plan::hints;
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

/// What this process runs in, as far as it changes what a refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surroundings {
    Host,
    /// Another agentbox: its mark is in the environment and a seccomp filter is on. The mark alone could be anyone's.
    Box,
    /// A seccomp filter of somebody else's: a container, another sandbox.
    Filtered,
}

/// What an errno of clone3(2) means to the user.
pub(super) fn clone_hint(errno: Errno, around: Surroundings) -> Option<&'static str> {
    match (errno, around) {
        (Errno::PERM | Errno::ACCESS | Errno::NOSYS, Surroundings::Box) => Some(hints::NESTED),
        // A filter answers one of these; a limit of the kernel's answers ENOSPC whatever filters there are.
        (Errno::PERM | Errno::ACCESS | Errno::NOSYS, Surroundings::Filtered) => Some(hints::FILTERED),
        (Errno::PERM | Errno::NOSPC | Errno::USERS | Errno::ACCESS, _) => Some(hints::USERNS),
        (Errno::NOSYS | Errno::INVAL, _) => Some(hints::KERNEL),
        (Errno::AGAIN, _) => Some("the limit on processes or namespaces is reached"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_by_errno_and_surroundings() {
        assert_eq!(clone_hint(Errno::NOSYS, Surroundings::Box), Some(hints::NESTED));
        assert_eq!(clone_hint(Errno::NOSYS, Surroundings::Filtered), Some(hints::FILTERED));
        assert_eq!(clone_hint(Errno::NOSYS, Surroundings::Host), Some(hints::KERNEL));
        assert_eq!(clone_hint(Errno::NOSPC, Surroundings::Box), Some(hints::USERNS));
        assert_eq!(clone_hint(Errno::PERM, Surroundings::Host), Some(hints::USERNS));
    }
}
