//! The program `redrive`: a durable `xargs`, and an operator's view of a store. It uses nothing but
//! the public API of the crate.

mod args;
mod capture;
mod children;
mod cohort;
mod command;
mod compact;
mod confirm;
mod control;
mod dead;
mod enqueue;
mod exit;
mod explain;
mod filter;
mod health;
mod job;
mod key;
mod lineage;
mod lines;
mod outbox;
mod output;
mod pause;
mod process;
mod reconcile;
mod report;
mod stats;
mod store;
mod verify;
mod work;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

fn main() -> ExitCode {
    let Args { file, command } = Args::parse();
    let outcome = match command {
        Command::Enqueue(args) => enqueue::run(&file, &args),
        Command::Work(args) => work::run(&file, args),
        Command::Stats(args) => stats::run(&file, &args),
        Command::Job(args) => job::run(&file, &args),
        Command::Lineage(args) => lineage::run(&file, &args),
        Command::Dead(command) => dead::run(&file, command),
        Command::Cohort(command) => cohort::run(&file, command),
        Command::Pause(args) => pause::pause(&file, args),
        Command::Resume(args) => pause::resume(&file, &args),
        Command::Pauses(args) => pause::list(&file, &args),
        Command::Outbox(args) => outbox::run(&file, &args),
        Command::Report(args) => report::run(&file, &args),
        Command::Health(args) => health::run(&file, &args),
        Command::Explain(args) => explain::run(&file, &args),
        Command::Verify(args) => verify::run(&file, &args),
        Command::Compact(args) => compact::run(&file, &args),
    };
    match outcome {
        Ok(status) => status.into(),
        Err(trouble) => trouble.report(),
    }
}
