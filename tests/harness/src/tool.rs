//! Where the programs are that the tests run.

use std::path::PathBuf;

/// The path of a tool that `make tools` builds; none, and a line that says `SKIPPED`,
/// where it is not installed.
///
/// It is looked for in the folder that `SIDECARJOB_TOOLS` names, else in the cache folder
/// where `make tools` puts it.
///
/// # Panics
/// If it is not installed and `SIDECARJOB_STRICT=1` is set, as it is in CI.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = tools_folder().join(name);
    if path.is_file() {
        return Some(path);
    }
    skip(&format!(
        "{} is not there; run `make tools`, or set SIDECARJOB_TOOLS to its folder",
        path.display()
    ));
    None
}

/// The folder with what `make tools` builds.
pub fn tools_folder() -> PathBuf {
    match std::env::var_os("SIDECARJOB_TOOLS") {
        Some(folder) => PathBuf::from(folder),
        None => cache_folder().join("sidecarjob/tools/bin"),
    }
}

/// The path of a program of the system; none, and a line that says `SKIPPED`, where it is
/// not installed. `package` is its name on Debian.
///
/// # Panics
/// If it is not installed and `SIDECARJOB_STRICT=1` is set, as it is in CI.
pub fn find_program(name: &str, package: &str) -> Option<PathBuf> {
    let searched = std::env::var_os("PATH").unwrap_or_default();
    // Servers are in folders that only root has in its PATH.
    let found = std::env::split_paths(&searched)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    if found.is_none() {
        skip(&format!("{name} is not there; install {package}"));
    }
    found
}

/// Says that a test can't have what it needs; the caller ends the test.
///
/// # Panics
/// With `SIDECARJOB_STRICT=1`, as it is in CI.
pub fn skip(reason: &str) {
    let is_strict = std::env::var_os("SIDECARJOB_STRICT").is_some_and(|value| value == "1");
    assert!(!is_strict, "{reason}");
    eprintln!("SKIPPED: {reason}");
}

fn cache_folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join(".cache"),
        (None, None) => PathBuf::from(".cache"),
    }
}
