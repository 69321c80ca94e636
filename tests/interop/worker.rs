//! Jobs, and what the binary makes of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// A manifest in a file, and the environment to run it in.
#[derive(Debug)]
pub struct Job {
    manifest: PathBuf,
    environment: Vec<(&'static str, String)>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// What `--report` got; null if the command did not get that far.
    pub report: Value,
}

impl Job {
    /// Writes `spec` as the job NAME into `folder`.
    pub fn new(folder: &Path, name: &str, spec: Value) -> Self {
        let job = json!({
            "apiVersion": "sidecarjob.dev/v1alpha1",
            "kind": "SidecarJob",
            "metadata": {"name": name},
            "spec": spec,
        });
        let manifest = folder.join(format!("{name}.yaml"));
        std::fs::write(&manifest, serde_json::to_string_pretty(&job).unwrap()).unwrap();
        Self {
            manifest,
            environment: Vec::new(),
        }
    }

    /// The same with variables set.
    pub fn in_environment(mut self, environment: Vec<(&'static str, String)>) -> Self {
        self.environment = environment;
        self
    }

    /// `shard-worker run`.
    pub fn run(&self) -> Outcome {
        self.command(&["run"])
    }

    /// `shard-worker run` with more arguments.
    #[allow(dead_code, reason = "not all binaries of tests need it")]
    pub fn run_with(&self, arguments: &[&str]) -> Outcome {
        self.command(&[["run"].as_slice(), arguments].concat())
    }

    /// `shard-worker verify --all --deep`.
    pub fn verify(&self) -> Outcome {
        self.verify_with(&["--all", "--deep"])
    }

    /// `shard-worker verify` with these arguments.
    #[allow(dead_code, reason = "not all binaries of tests need it")]
    pub fn verify_with(&self, arguments: &[&str]) -> Outcome {
        self.command(&[["verify"].as_slice(), arguments].concat())
    }

    fn command(&self, arguments: &[&str]) -> Outcome {
        let report = self
            .manifest
            .with_extension(arguments[0].to_owned() + ".json");
        if report.exists() {
            std::fs::remove_file(&report).unwrap();
        }
        let output = Command::new(env!("CARGO_BIN_EXE_shard-worker"))
            .args(arguments)
            .arg(&self.manifest)
            .arg("--report")
            .arg(&report)
            .env_remove("RUST_LOG")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let report = match std::fs::read(&report) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
            Err(_) => Value::Null,
        };
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            report,
        }
    }
}

impl Outcome {
    /// Itself, if the command ended with `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "{}\n{}\n{}",
            self.stdout,
            self.stderr,
            self.report
        );
        self
    }

    /// A number of the report.
    #[track_caller]
    pub fn count(&self, name: &str) -> u64 {
        self.report[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {}\n{}", self.report, self.stderr))
    }

    /// Failed shards of a run: path and reason.
    pub fn failures(&self) -> BTreeMap<String, String> {
        self.pairs("failures", "reason")
    }

    /// What a verification found: path and kind.
    #[allow(dead_code, reason = "not all binaries of tests need it")]
    pub fn problems(&self) -> BTreeMap<String, String> {
        self.pairs("problems", "kind")
    }

    fn pairs(&self, list: &str, second: &str) -> BTreeMap<String, String> {
        let entries = self.report[list].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        entries
            .map(|entry| (text(&entry["path"]), text(&entry[second])))
            .collect()
    }
}

/// A folder as a prefix.
pub fn prefix(folder: &Path) -> String {
    format!("{}/", folder.display())
}
