//! What the documents promise of a run on a cluster has scenes that play it.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const PROMISES: &str = include_str!("promises.txt");

fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests"))
}

fn document(name: &str) -> String {
    std::fs::read_to_string(tests().join("../docs").join(name)).unwrap()
}

/// The promises about a document, each with its scenes.
fn promises(document: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut sections = PROMISES.split("\n# ");
    let section = sections.find(|section| section.starts_with(document));
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut promise = "";
    for line in section.unwrap().lines().skip(1) {
        if let Some(scene) = line.strip_prefix("    ") {
            found.entry(promise).or_default().push(scene);
        } else if !line.is_empty() {
            promise = line;
            found.entry(promise).or_default();
        }
    }
    found
}

/// The first cells of a document's tables.
fn first_cells(text: &str) -> Vec<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(" | ").next()).collect()
}

/// A scene that somebody renames or deletes leaves its promise without one.
#[test]
fn every_scene_is_there() {
    let documents = ["docs/failure-modes.md", "docs/conditions.md"];
    for (promise, scenes) in documents.into_iter().flat_map(promises) {
        assert!(!scenes.is_empty(), "{promise}");
        for scene in scenes {
            let (file, name) = scene.split_once("::").unwrap();
            let text = std::fs::read_to_string(tests().join(format!("{file}.rs"))).unwrap();
            let is_there = text.contains(&format!("fn {name}("));
            assert!(is_there, "{promise}: no scene {scene}");
        }
    }
}

#[test]
fn every_failure_mode_has_a_scene() {
    let text = document("failure-modes.md");
    let mut left: BTreeSet<&str> = promises("docs/failure-modes.md").into_keys().collect();
    for cell in first_cells(&text) {
        if cell == "what happens" {
            continue;
        }
        let begins = left.iter().copied().find(|begin| cell.starts_with(begin));
        let begins = begins.unwrap_or_else(|| panic!("{cell}: no scene in tests/promises.txt"));
        left.remove(begins);
    }
    assert!(left.is_empty(), "not in the document: {left:?}");
}

#[test]
fn every_reason_has_a_scene() {
    let text = document("conditions.md");
    let (_, text) = text.split_once("## Reasons").unwrap();
    let documented: BTreeSet<&str> = first_cells(text)
        .into_iter()
        .filter(|cell| *cell != "reason")
        .map(|cell| cell.trim_matches('`'))
        .collect();
    let played: BTreeSet<&str> = promises("docs/conditions.md").into_keys().collect();
    assert_eq!(documented, played);
}
