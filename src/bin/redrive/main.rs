//! The program `redrive`.
fn main() {}
