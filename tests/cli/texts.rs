//! What is printed: completions, the manual page, log lines.

use std::process::{Command, Stdio};

use harness::dataset::path;
use serde_json::Value;

use crate::fixture::Fixture;
use crate::worker::Worker;

const RUN_FLAGS: [&str; 8] = [
    "output-prefix",
    "no-skip-existing",
    "dry-run",
    "select",
    "max-shards",
    "memory",
    "threads",
    "report",
];

/// The shell itself, where there is one, has nothing against the script.
fn assert_parses(shell: &str, flags: &[&str], script: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("script");
    std::fs::write(&file, script).expect("write");
    let checked = Command::new(shell)
        .args(flags)
        .arg(&file)
        .stdin(Stdio::null())
        .output();
    if let Ok(checked) = checked {
        assert!(
            checked.status.success(),
            "{shell}: {}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }
}

#[test]
fn completions_know_every_flag() {
    for (shell, flags) in [
        ("bash", vec!["-n"]),
        ("zsh", vec!["-n"]),
        ("fish", vec!["--no-execute"]),
    ] {
        let script = Worker::new(&["completions", shell]).run().expect(0).stdout;
        for word in RUN_FLAGS.iter().chain(&[
            "shard-worker",
            "verify",
            "audit",
            "manifest",
            "deep",
            "samples",
        ]) {
            assert!(script.contains(word), "{shell}: {word} is missing");
        }
        assert_parses(shell, &flags, &script);
    }
    Worker::new(&["completions", "cmd"])
        .run()
        .expect(2)
        .says(&["bash", "zsh", "fish"]);
}

#[test]
fn the_manual_page_has_every_command_flag_and_exit_code() {
    let page = Worker::new(&["man"]).run().expect(0).stdout;
    let page = page.replace("\\-", "-");
    assert!(page.contains(".TH shard-worker 1"), "{page}");
    for word in [
        "verify",
        "audit",
        "manifest",
        "Exit codes",
        "143",
        "--deep",
        "--samples",
    ] {
        assert!(page.contains(word), "{word} is missing");
    }
    for flag in RUN_FLAGS {
        assert!(page.contains(&format!("--{flag}")), "--{flag} is missing");
    }
}

fn assert_json_lines(text: &str) -> Vec<Value> {
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    lines.collect()
}

#[test]
fn with_json_logs_every_line_is_json() {
    let fixture = Fixture::new();
    let json = |text: &str| {
        fixture
            .worker("run", text)
            .arguments("--log-format json --verbose")
    };
    // Something to complain of: a poisonous shard, bad lines of captions.
    std::fs::write(fixture.path("main").join(path(3)), "garbage").expect("write");
    let ended = json(&fixture.full()).run().expect(1);
    let lines = assert_json_lines(&ended.stderr);
    assert!(!lines.is_empty());
    assert!(
        lines
            .iter()
            .all(|line| line["level"].is_string() && line["timestamp"].is_string()),
        "{lines:#?}"
    );

    // No output is named, and nothing can be done: said as lines of the log as well.
    let text = fixture.full();
    let (head, _) = text.split_once("  output:").expect("an output");
    let lines = assert_json_lines(&json(head).run().expect(1).stderr);
    assert!(
        lines
            .iter()
            .any(|line| line.to_string().contains("main_run_")),
        "{lines:#?}"
    );
    let missing = fixture.full().replace("/index/", "/nowhere/");
    let lines = assert_json_lines(&json(&missing).run().expect(2).stderr);
    assert!(
        lines
            .iter()
            .any(|line| line["level"] == "ERROR" && line.to_string().contains("/nowhere/")),
        "{lines:#?}"
    );
}

#[test]
fn text_logs_say_nothing_on_standard_output_but_the_summary() {
    let fixture = Fixture::new();
    let ended = fixture.run(&fixture.full()).expect(0);
    assert!(
        ended.stdout.starts_with("job full, run "),
        "{}",
        ended.stdout
    );
    assert!(!ended.stdout.contains('\u{1b}') && !ended.stderr.contains('\u{1b}'));
    for word in ["source_a", "filter_clarity", "malformed lines", "rows/s"] {
        assert!(ended.stdout.contains(word), "{word}: {}", ended.stdout);
    }
}

/// A reader that goes away is no failure.
#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shard-worker"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty());
}
