//! Finding the files that a pipeline refers to.

use std::path::{Path, PathBuf};

use crate::suggest::did_you_mean;

/// The file of a dataset. A reference with a `/` or an extension is a path, absolute or
/// from the pipeline's folder; any other is looked for as `datasets/NAME.yaml` in the
/// pipeline's folder and in the folders above it.
///
/// The error says where it was looked for.
pub(super) fn find_dataset(pipeline: &Path, reference: &str) -> Result<PathBuf, String> {
    let start = folder_of(pipeline);
    if reference.contains('/') || is_yaml(Path::new(reference)) {
        let path = start.join(reference);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!("there is no file {}", path.display()))
        };
    }
    let mut neighbours = Vec::new();
    for folder in start.ancestors() {
        let datasets = folder.join("datasets");
        for extension in ["yaml", "yml"] {
            let path = datasets.join(format!("{reference}.{extension}"));
            if path.is_file() {
                return Ok(path);
            }
        }
        neighbours.extend(yaml_files(&datasets));
    }
    let names: Vec<String> = neighbours
        .iter()
        .filter_map(|path| path.file_stem())
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect();
    let hint = did_you_mean(reference, names.iter().map(String::as_str));
    Err(format!(
        "there is no datasets/{reference}.yaml in {} or a folder above it{hint}",
        start.display()
    ))
}

/// The YAML files of the first folder `schemas` beside the dataset's folder or above,
/// by name.
pub(super) fn schema_files(dataset: &Path) -> Vec<PathBuf> {
    folder_of(dataset)
        .ancestors()
        .map(|folder| folder.join("schemas"))
        .find(|schemas| schemas.is_dir())
        .map(|schemas| yaml_files(&schemas))
        .unwrap_or_default()
}

/// The absolute folder of a file, so that all folders above it are known.
fn folder_of(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    absolute.parent().map_or_else(PathBuf::new, Path::to_owned)
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file() && is_yaml(path))
        .collect();
    files.sort();
    files
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}
