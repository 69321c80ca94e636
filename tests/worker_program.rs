//! The worker's binary, which is another package's than that of these tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where it is; built if it isn't there, or is not of this source.
///
/// With an example beside it Cargo gives dependencies the features that tests have, and so the
/// build that `cargo test --workspace` has made is taken; without, all would be built once more.
pub fn worker() -> &'static Path {
    static WORKER: OnceLock<PathBuf> = OnceLock::new();
    WORKER.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--workspace", "--locked", "--quiet"])
            .args(["--bin", "shard-worker", "--example", "show-rows"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .status()
            .expect("Cargo runs");
        assert!(built.success(), "the worker can't be built");
        let path = Path::new(env!("CARGO_BIN_EXE_sidecarjob-operator"));
        path.with_file_name("shard-worker")
    })
}
