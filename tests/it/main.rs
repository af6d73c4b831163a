//! The fast integration tests, in one binary. Named after the promise (P4) or the case (O-01) they
//! hold to.

mod cases;
mod support;
