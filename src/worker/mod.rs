//! Loops that run handlers; uses only the public handle.
