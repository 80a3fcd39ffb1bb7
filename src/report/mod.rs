//! What happened, as values, then text or JSON.
