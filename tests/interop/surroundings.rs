//! What the tests need that is not part of the checkout: Python with its Parquet libraries,
//! and files made by others.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python that has pyarrow, DuckDB, Polars and fastparquet.
#[derive(Debug)]
pub struct Python {
    binary: PathBuf,
}

impl Python {
    /// The environment that `SIDECARJOB_VENV` names, else the one that `make tools` makes; none,
    /// and a line that says `SKIPPED`, where it is not there.
    pub fn find() -> Option<Self> {
        let folder = match set("SIDECARJOB_VENV") {
            Some(folder) => folder,
            None => match (set("XDG_CACHE_HOME"), set("HOME")) {
                (Some(cache), _) => cache.join("sidecarjob/venv"),
                (None, Some(home)) => home.join(".cache/sidecarjob/venv"),
                (None, None) => PathBuf::from(".cache/sidecarjob/venv"),
            },
        };
        let binary = folder.join("bin/python");
        if binary.is_file() {
            return Some(Self { binary });
        }
        skip(&format!(
            "{} is not there; run `make tools`, or set SIDECARJOB_VENV to a Python environment",
            binary.display()
        ));
        None
    }

    /// Runs one of the scripts beside this file; it fails by an exception, which is shown.
    #[allow(dead_code, reason = "not all binaries of tests need it")]
    pub fn script(&self, name: &str, arguments: &[&str]) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/interop");
        self.run(&folder.join(name), arguments)
    }

    /// Runs a program.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> String {
        let output = Command::new(&self.binary)
            .arg(program)
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{} {arguments:?} ended with {}\n{stdout}\n{}",
            program.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        stdout
    }
}

/// A folder of files made by others: the one that `variable` names, else `shared/NAME` beside
/// the checkout; none, and a line that says `SKIPPED`, where it is not there.
pub fn shared_folder(variable: &str, name: &str) -> Option<PathBuf> {
    let folder = set(variable).unwrap_or_else(|| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../shared")
            .join(name)
    });
    if folder.is_dir() {
        return Some(folder);
    }
    skip(&format!(
        "{} is not there; set {variable} to the folder of {name}",
        folder.display()
    ));
    None
}

fn set(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

fn skip(missing: &str) {
    let is_strict = std::env::var_os("SIDECARJOB_STRICT").is_some_and(|value| value == "1");
    assert!(!is_strict, "{missing}");
    eprintln!("SKIPPED: {missing}");
}
