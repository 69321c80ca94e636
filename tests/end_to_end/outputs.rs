//! What is in an output, and what should be.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Shards by relative path.
pub type Shards = BTreeMap<String, Vec<u8>>;

/// Which of the objects at a path it is: the server makes a new file for each that is put.
type Version = (u64, i64, i64);

/// The shards below a folder.
pub fn shards(folder: &Path) -> Shards {
    let mut found = Shards::new();
    visit(folder, &mut |path, name| {
        found.insert(name, std::fs::read(path).unwrap());
    });
    found
}

/// Calls `seen` for each shard below a folder, with its path and the path from there.
fn visit(folder: &Path, seen: &mut dyn FnMut(&Path, String)) {
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten() {
            let path = entry.unwrap().path();
            let is_shard = path
                .extension()
                .is_some_and(|extension| extension == "parquet");
            if path.is_dir() {
                folders.push(path);
            } else if is_shard {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                seen(&path, name);
            }
        }
    }
}

/// What `shard-worker run` on this machine makes of a manifest whose output is the folder; made
/// once for each `name`.
pub fn of_one_machine(
    name: &str,
    manifest: &Path,
    environment: &[(&'static str, String)],
    output: &Path,
) -> Arc<Shards> {
    static KNOWN: OnceLock<Mutex<HashMap<String, Arc<Shards>>>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let shards = known.entry(name.to_owned()).or_insert_with(|| {
        let worker = Command::new(crate::worker_program::worker())
            .arg("run")
            .arg(manifest)
            .envs(environment.iter().cloned())
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&worker.stderr);
        assert!(worker.status.success(), "{words}");
        Arc::new(shards(output))
    });
    Arc::clone(shards)
}

/// Asserts that two outputs have the same shards, byte for byte.
pub fn assert_same(found: &Shards, expected: &Shards) {
    let missing: Vec<_> = expected
        .keys()
        .filter(|name| !found.contains_key(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "{} are missing: {missing:?}",
        missing.len()
    );
    let extra: Vec<_> = found
        .keys()
        .filter(|name| !expected.contains_key(*name))
        .collect();
    assert!(extra.is_empty(), "{} too many: {extra:?}", extra.len());
    let different: Vec<_> = found
        .iter()
        .filter(|(name, bytes)| expected[*name] != **bytes)
        .map(|(name, _)| name)
        .collect();
    assert!(
        different.is_empty(),
        "{} differ: {different:?}",
        different.len()
    );
}

/// Looks at an output all the time: no shard that was there may go or be put again.
pub struct Witness {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Witness {
    const INTERVAL: Duration = Duration::from_millis(250);

    pub fn of(output: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut seen: BTreeMap<String, Version> = BTreeMap::new();
            let mut complaints = Vec::new();
            loop {
                let is_last = stopped.load(Ordering::Acquire);
                look(&output, &mut seen, &mut complaints);
                if is_last {
                    return complaints;
                }
                std::thread::sleep(Self::INTERVAL);
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Asserts that nothing was done twice until now.
    pub fn testify(mut self) {
        self.stop.store(true, Ordering::Release);
        let complaints = self.thread.take().unwrap().join().unwrap();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn look(output: &Path, seen: &mut BTreeMap<String, Version>, complaints: &mut Vec<String>) {
    let mut now = BTreeMap::new();
    visit(output, &mut |path, name| {
        if let Ok(metadata) = std::fs::metadata(path) {
            let version = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
            now.insert(name, version);
        }
    });
    for (name, version) in seen.iter() {
        match now.get(name) {
            None => complaints.push(format!("{name} is gone")),
            Some(other) if other != version => complaints.push(format!("{name} was put again")),
            Some(_) => {}
        }
    }
    *seen = now;
}
