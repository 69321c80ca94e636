//! The reference programs over the same images: equal tables.

use std::path::Path;

use serde_json::json;

use crate::pictures::{all_filters, spec};
use crate::surroundings::{Python, shared_folder};
use crate::worker::{Job, prefix};

struct Oracle {
    python: Python,
    programs: std::path::PathBuf,
    folder: tempfile::TempDir,
}

impl Oracle {
    fn find() -> Option<Self> {
        Some(Self {
            python: Python::find()?,
            programs: shared_folder("SIDECARJOB_BASELINE", "baseline")?,
            folder: tempfile::tempdir().unwrap(),
        })
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn script(&self, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/filters/oracle.py");
        self.python.run(&script, arguments)
    }

    /// Both programs over the shards below `main`; says how many values were compared.
    fn compare(&self) -> u64 {
        let program = self.programs.join("compute_filters.py");
        let arguments = ["--main", &self.at("main"), "--out", &self.at("reference")];
        self.python.run(&program, &arguments);
        let spec = spec(
            &prefix(&self.folder.path().join("main")),
            &prefix(&self.folder.path().join("ours")),
            json!({"filters": all_filters()}),
        );
        let job = Job::new(self.folder.path(), "oracle", spec);
        job.run().expect(0);
        job.verify().expect(0);
        let compared = self.script(&["compare", &self.at("reference"), &self.at("ours")]);
        compared.trim().parse().unwrap()
    }
}

/// Every format, depth and sampling that can be written, in odd sizes.
#[test]
fn formats_give_the_references_values() {
    let Some(oracle) = Oracle::find() else {
        return;
    };
    oracle.script(&["formats", &oracle.at("main")]);
    let values = oracle.compare();
    assert!(values > 10_000, "{values}");
}

/// Photo-like images with Exif blocks, broken ones and missing ones among them.
#[test]
fn datasets_give_the_references_values() {
    let Some(oracle) = Oracle::find() else {
        return;
    };
    let shape = [
        "--shards",
        "5",
        "--rows",
        "24",
        "--row-group",
        "10",
        "--edge-shards",
    ];
    let kinds = ["--parts", "main", "--image-pool", "40", "--odd-rate", "0.3"];
    let sizes = ["--min-px", "12", "--max-px", "160"];
    let data = oracle.at("data");
    oracle.python.run(
        &oracle.programs.join("gen.py"),
        &[["--out", &data].as_slice(), &shape, &kinds, &sizes].concat(),
    );
    std::fs::rename(format!("{data}/main"), oracle.at("main")).unwrap();
    let values = oracle.compare();
    assert!(values > 4_000, "{values}");
}
