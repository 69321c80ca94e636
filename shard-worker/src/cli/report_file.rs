//! The file that a report goes to.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result};

/// A file that is opened before the work begins: what can't be written is better known then.
/// What was in it stays until there is a report, and a file that was made for one goes again if
/// there is none.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl ReportFile {
    /// Opens the file that `--report` names, if it does.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn open(path: Option<&Path>) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.open(path).map_err(|error| failed(path, &error))?;
        Ok(Some(Self {
            path: path.to_owned(),
            file,
            is_new,
        }))
    }

    /// Writes the report as JSON, in place of what was there.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(mut self, report: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(report);
        let text = text.map_err(|error| failed(&self.path, &error))? + "\n";
        // A pipe or a terminal has no length.
        let is_file = self
            .file
            .metadata()
            .is_ok_and(|metadata| metadata.is_file());
        let emptied = match is_file {
            true => self.file.set_len(0).and_then(|()| self.file.rewind()),
            false => Ok(()),
        };
        let written = emptied.and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| failed(&self.path, &error))?;
        self.is_new = false;
        Ok(())
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Usage(format!("--report {}: {error}", path.display()))
}
