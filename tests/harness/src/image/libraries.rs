//! The libraries that a program is linked with, by the word of `ldd`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{ImageFile, Layer, inside};

/// The files that a program needs to be there, at the paths at which it looks for them.
pub(super) fn of(program: &Path) -> Result<Layer> {
    let output = Command::new("ldd")
        .arg(program)
        .env("LC_ALL", "C")
        .output()
        .context("can't run ldd")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("not a dynamic executable") {
        return Ok(Layer::new());
    }
    if !output.status.success() {
        bail!("ldd {}: {}", program.display(), complaint.trim());
    }
    let mut layer = Layer::new();
    for path in paths(&said).with_context(|| format!("ldd {}", program.display()))? {
        let bytes = fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
        layer.insert(inside(&path), ImageFile { mode: 0o755, bytes });
    }
    Ok(layer)
}

/// The paths in what `ldd` says, of libraries and of the loader.
fn paths(said: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for line in said.lines() {
        let library = match line.split_once(" => ") {
            Some((name, "not found")) => bail!("{} is not found", name.trim()),
            Some((_, path)) => path,
            None => line,
        };
        let path = library.split(" (0x").next().unwrap_or_default().trim();
        // What has no path, the kernel brings along; and a static program says so in words.
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_loader_are_found() {
        let said = "\tlinux-vdso.so.1 (0x00007ffc1)\n\
                    \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f3)\n";
        assert_eq!(
            paths(said).unwrap(),
            [
                PathBuf::from("/lib/x86_64-linux-gnu/libm.so.6"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2"),
            ]
        );
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = paths("\tlibnone.so.3 => not found\n").unwrap_err();
        assert_eq!(error.to_string(), "libnone.so.3 is not found");
    }

    #[test]
    fn a_static_program_has_none() {
        assert!(paths("\tstatically linked\n").unwrap().is_empty());
    }
}
