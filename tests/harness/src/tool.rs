//! Where the programs are that the tests run.

use std::path::PathBuf;

/// The program's path; none, and a line that says `SKIPPED`, where it is not installed.
///
/// It is looked for in the folder that `SIDECARJOB_TOOLS` names, else in the cache folder
/// where `make tools` puts it.
///
/// # Panics
/// If it is not installed and `SIDECARJOB_STRICT=1` is set, as it is in CI.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("SIDECARJOB_TOOLS") {
        Some(folder) => PathBuf::from(folder),
        None => cache_folder().join("sidecarjob/tools/bin"),
    };
    let path = folder.join(name);
    if path.is_file() {
        return Some(path);
    }
    let is_strict = std::env::var_os("SIDECARJOB_STRICT").is_some_and(|value| value == "1");
    assert!(
        !is_strict,
        "{} is not there: run `make tools`, or set SIDECARJOB_TOOLS to its folder",
        path.display()
    );
    eprintln!("SKIPPED: {} is not there; run `make tools`", path.display());
    None
}

fn cache_folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join(".cache"),
        (None, None) => PathBuf::from(".cache"),
    }
}
