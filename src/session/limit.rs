//! The time limit of a run: first the command is asked to end, then the box is killed.

use rustix::event::Timespec;
use std::time::{Duration, Instant};

/// How long a command may take to end after its time limit, before the box is killed.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) enum Limit {
    None,
    /// The command is asked to end at this time.
    Ends {
        at: Instant,
    },
    /// It was asked, and the box is killed at this time.
    Grace {
        at: Instant,
    },
    /// The box was killed.
    Over,
}

/// What the limit demands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Ask,
    Kill,
}

impl Limit {
    /// A limit too far off to be a time is none.
    pub(super) fn starting(began: Instant, limit: Option<Duration>) -> Limit {
        limit.and_then(|limit| began.checked_add(limit)).map_or(Limit::None, |at| Limit::Ends { at })
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Limit::None)
    }

    /// Each demand is made once.
    pub(super) fn due(&mut self) -> Option<Due> {
        let now = Instant::now;
        match self {
            Limit::Ends { at } if *at <= now() => {
                *self = Limit::Grace { at: now() + GRACE };
                Some(Due::Ask)
            }
            Limit::Grace { at } if *at <= now() => {
                *self = Limit::Over;
                Some(Due::Kill)
            }
            Limit::None | Limit::Over | Limit::Ends { .. } | Limit::Grace { .. } => None,
        }
    }

    /// The time until the next demand, if there will be one.
    pub(super) fn left(&self) -> Option<Timespec> {
        let (Limit::Ends { at } | Limit::Grace { at }) = self else { return None };
        let left = at.saturating_duration_since(Instant::now());
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
    }

    pub(super) fn postpone(&mut self, by: Duration) {
        if let Limit::Ends { at } | Limit::Grace { at } = self {
            *at += by;
        }
    }

    /// The command was asked to end, or was killed, for its time.
    pub(super) fn passed(&self) -> bool {
        matches!(self, Limit::Grace { .. } | Limit::Over)
    }
}
