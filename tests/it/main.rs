//! The fast integration tests, in one binary.
mod smoke;
