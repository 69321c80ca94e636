//! What the documents say of the house is so.

#![allow(clippy::unwrap_used)] // tests may fail loudly

use std::path::PathBuf;
use std::process::Command;

fn repository() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect()
}

/// Texts between backticks that look like paths of this repository.
fn paths(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|text| text.contains('/') && !text.starts_with('_') && !text.contains(' '))
        .collect()
}

#[test]
fn files_that_the_architecture_names_are_there() {
    let page = std::fs::read_to_string(repository().join("docs/architecture.md")).unwrap();
    let named = paths(&page);
    assert!(named.len() > 40, "{named:?}");
    for path in named {
        assert!(repository().join(path).exists(), "{path} is gone");
    }
    let lines = page.lines().count();
    assert!(lines <= 100, "{lines} lines are more than two screens");
}

/// Whoever depends on one of these could wait, ask or write.
#[test]
fn rules_have_neither_a_runtime_nor_a_client() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges=normal"])
        .args(["--prefix=none", "--format={lib}", "--package"])
        .arg("sidecarjob-rules")
        .current_dir(repository())
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && tree.contains("crds"), "{tree}");
    for name in tree.split_ascii_whitespace() {
        let forbidden = ["tokio", "hyper", "kube_client", "storage", "aws_sdk_s3"];
        assert!(!forbidden.contains(&name), "rules depend on {name}");
    }
}
