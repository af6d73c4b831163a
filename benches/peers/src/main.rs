//! redrive, a hand-written SQLite queue and a bare redb loop under the same workloads, in turns.
//!
//!     cargo run --release --manifest-path benches/peers/Cargo.toml -- [DIRECTORY]
//!
//! Every contender has keys that outlive their job, counts a delivery before it hands a job out, and
//! answers after the commit is synced. The peers have one writer thread with group commit (the same
//! loop for both, see `group.rs`), and nothing else that redrive has: no classes, no leases that
//! end, no history, no counters, no checksums of their own. They say what the storage below costs.

mod bare_redb;
mod group;
mod ours;
mod sqlite;
mod workload;

use std::path::Path;

use workload::{Contender, Figures, measure};

type Open = fn(&Path) -> Box<dyn Contender>;

const CONTENDERS: [(&str, Open); 3] =
    [("redrive", ours::open), ("sqlite", sqlite::open), ("bare redb", bare_redb::open)];

/// Whole runs, of which the median counts.
const RUNS: usize = 3;

fn main() {
    let directory = std::env::args_os().nth(1);
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target").into();
    let directory = directory.unwrap_or_else(default);
    std::fs::create_dir_all(&directory).unwrap();
    println!("in {}", Path::new(&directory).display());
    let mut figures: Vec<Vec<Figures>> = CONTENDERS.iter().map(|_| Vec::new()).collect();
    for run in 0..RUNS {
        for ((name, open), figures) in CONTENDERS.iter().zip(&mut figures) {
            let fresh = tempfile::tempdir_in(&directory).unwrap();
            let contender = open(fresh.path());
            if run == 0 {
                println!("{name}: {}", contender.settings());
            }
            figures.push(measure(&*contender));
        }
    }
    let medians: Vec<Figures> = figures.into_iter().map(workload::median).collect();
    report(&medians);
}

fn report(medians: &[Figures]) {
    print!("{:<28}", "lives per second");
    for (name, _) in CONTENDERS {
        print!("{name:>12}");
    }
    println!("{:>16}{:>16}", "to sqlite", "to bare redb");
    for (place, workload) in workload::NAMES.iter().enumerate() {
        print!("{workload:<28}");
        for figures in medians {
            print!("{:>12.0}", figures[place]);
        }
        let ours = medians[0][place];
        for peer in &medians[1..] {
            print!("{:>16.2}", ours / peer[place]);
        }
        println!();
    }
}
