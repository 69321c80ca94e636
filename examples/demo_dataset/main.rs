//! Makes the dataset that `make demo` enriches.
//!
//! It has what real ones have: some three hundred shards over several folders and
//! sources, one source that no index covers, rows without a key, repeated keys, an
//! index whose later lines correct earlier ones, sibling shards that are missing,
//! caption files with broken lines, and two main shards that are damaged. Beside it are a few
//! hundred photographs with what a crawl brings along.
//!
//! ```text
//! demo-dataset DIR          make the dataset, unless it is there
//! demo-dataset DIR damage   damage those two shards (as they are at first)
//! demo-dataset DIR repair   put the good shards in their place
//! ```
//!
//! The same version of this program always writes the same rows.

mod index;
mod main_shards;
mod parquet_output;
mod photos;
mod picture;
mod plan;
mod recaptions;
mod scatter;
mod scores;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail};

use index::write_index;
use main_shards::write_main;
use photos::write_photos;
use plan::{INDEXED, Shard, plan};
use recaptions::write_recaptions;
use scores::write_scores;

/// Changing what is written means changing this: the dataset is then made anew.
const VERSION: &str = "3";
/// These two shards are damaged: one is empty, one lacks its second half.
const EMPTY_SHARD: usize = 17;
const CUT_SHARD: usize = 142;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().unwrap_or_else(|| "demo-data".into()));
    let plan = plan();
    match arguments.next().as_deref() {
        None => make(&root, &plan),
        Some("damage") => damage(&root, &plan),
        Some("repair") => repair(&root, &plan),
        Some(other) => bail!("unknown action {other:?}: leave it out, or say damage or repair"),
    }
}

fn make(root: &Path, plan: &[Shard]) -> Result<()> {
    let stamp = root.join("VERSION");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == VERSION) {
        println!("{} is there already", root.display());
        return Ok(());
    }
    let folders = [
        "main",
        "index",
        "scores",
        "recaptions",
        "sidecar",
        "photos",
        "photos_filters",
    ];
    for folder in folders {
        match fs::remove_dir_all(root.join(folder)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    fs::create_dir_all(root)?;
    in_parallel(plan.len(), |number| {
        write_main(root, &plan[number])?;
        write_scores(root, &plan[number])
    })?;
    in_parallel(INDEXED, |source| write_index(root, source, plan))?;
    in_parallel(photos::SHARDS, |shard| write_photos(root, shard))?;
    write_recaptions(root, plan)?;
    fs::write(
        root.join("main/README.txt"),
        "Not a shard: listings pass over it.\n",
    )?;
    damage(root, plan)?;
    fs::write(stamp, VERSION)?;
    let rows: usize = plan.iter().map(|shard| shard.rows).sum();
    println!(
        "made {}: {} shards, {rows} rows",
        root.display(),
        plan.len()
    );
    Ok(())
}

fn damage(root: &Path, plan: &[Shard]) -> Result<()> {
    repair(root, plan)?;
    let empty = root.join("main").join(&plan[EMPTY_SHARD].path);
    fs::write(&empty, b"")?;
    let cut = root.join("main").join(&plan[CUT_SHARD].path);
    let half = fs::metadata(&cut)?.len() / 2;
    File::options().write(true).open(&cut)?.set_len(half)?;
    Ok(())
}

fn repair(root: &Path, plan: &[Shard]) -> Result<()> {
    write_main(root, &plan[EMPTY_SHARD])?;
    write_main(root, &plan[CUT_SHARD])
}

/// Calls `work` for each number below `count`, on every core.
fn in_parallel(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return Ok(());
                        }
                        work(number)?;
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })
}
