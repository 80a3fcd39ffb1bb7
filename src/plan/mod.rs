//! Ordered steps.
