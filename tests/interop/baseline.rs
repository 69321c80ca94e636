//! The three ops against the programs of the Python baseline, on its data: equal tables, from
//! local files and from S3.

use std::path::PathBuf;

use harness::s3_server::S3Server;
use serde_json::{Value, json};

use crate::surroundings::{Python, shared_folder};
use crate::upload::upload;
use crate::worker::{Job, prefix};

const FILTERS: [&str; 6] = [
    "clarity",
    "texture",
    "luma",
    "saturation",
    "color_entropy",
    "edge_density",
];

/// The baseline's data and its own results.
struct Baseline {
    python: Python,
    folder: tempfile::TempDir,
}

impl Baseline {
    fn make() -> Option<Self> {
        let python = Python::find()?;
        let programs = shared_folder("SIDECARJOB_BASELINE", "baseline")?;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let run =
            |program: &str, arguments: &[&str]| python.run(&programs.join(program), arguments);
        let (data, main, index, joined, merged) = (
            at("data"),
            at("data/main"),
            at("index"),
            at("joined"),
            at("merged"),
        );
        let shape = [
            "--shards",
            "12",
            "--rows",
            "64",
            "--index-keys",
            "3000",
            "--lines-per-file",
            "500",
        ];
        let kind = [
            "--parts",
            "main,metrics,scores",
            "--tiny-images",
            "--edge-shards",
            "--malformed-rate",
            "0.005",
        ];
        run(
            "gen.py",
            &[["--out", &data].as_slice(), &shape, &kind].concat(),
        );
        run(
            "stage_a.py",
            &["--metrics", &at("data/metrics"), "--out", &index],
        );
        run(
            "stage_b.py",
            &["--main", &main, "--index", &index, "--out", &joined],
        );
        let dqm =
            format!("{data}/score_dqm,mode=prefer_sidecar,columns=score_dqm,target_key=image_key");
        let aes = format!("{data}/score_aes,mode=prefer_sidecar");
        let recaption = format!("{data}/recaption,mode=prefer_sidecar,required=0");
        run(
            "merge.py",
            &[
                "--base", &joined, "--out", &merged, "--from", &dqm, "--from", &aes, "--from",
                &recaption,
            ],
        );
        python.script("baseline.py", &["texts", &data, &at("texts")]);
        Some(Self { python, folder })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

/// Where a round of jobs has its inputs and outputs.
struct Place {
    /// As a prefix for manifests.
    uri: String,
    /// The same place as a folder.
    folder: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Place {
    fn run(&self, baseline: &Baseline, name: &str, spec: Value) -> String {
        let job =
            Job::new(baseline.folder.path(), name, spec).in_environment(self.environment.clone());
        let outcome = job.run().expect(0);
        assert_eq!(outcome.count("shards_done"), 15);
        let verification = job.verify().expect(0);
        assert_eq!(verification.count("rows"), outcome.count("rows"));
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    fn spec(&self, main: &str, output: &str, columns: Value, pipeline: Value) -> Value {
        let markers = ["source_a", "source_b", "source_c"]
            .map(|source| json!({"contains": format!("/{source}/"), "source": source}));
        json!({
            "dataset": {
                "mainPrefix": format!("{}{main}/", self.uri),
                "keyColumn": "s3_path",
                "imageColumn": "image",
                "sources": {"markers": markers},
            },
            "schemas": {"dqm_v1": [{"name": "raw_score", "type": "float64"}, {"name": "error", "type": "string"}]},
            "columns": columns,
            "pipeline": pipeline,
            "output": {"prefix": format!("{}{output}/", self.uri)},
        })
    }

    fn join(&self) -> Value {
        let mut names = vec!["source".to_owned(), "file_size".to_owned()];
        names.extend(FILTERS.map(|filter| format!("filter_{filter}")));
        let mut columns = vec![
            json!({"name": "source", "type": "string"}),
            json!({"name": "file_size", "type": "int64"}),
        ];
        columns.extend(
            names[2..]
                .iter()
                .map(|name| json!({"name": name, "type": format!("{name}_v1")})),
        );
        let step =
            json!({"joinFromParquet": {"source": format!("{}index/", self.uri), "columns": names}});
        self.spec(
            "data/main",
            "our-join",
            Value::from(columns),
            json!([{"extractScaffold": {}}, step]),
        )
    }

    fn merge(&self) -> Value {
        let step = |name: &str, more: Value| {
            let mut step = json!({"sourcePrefix": format!("{}data/{name}/", self.uri), "mode": "PreferSidecar"});
            step.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"mergeFromSidecar": step})
        };
        // Shards without the sibling of the texts have them, too, without a value.
        let columns = json!([
            {"name": "score_dqm", "type": "dqm_v1"},
            {"name": "score_aes", "type": "score_v1"},
            {"name": "caption", "type": "string"},
            {"name": "detailed_description", "type": "string"},
            {"name": "ocr_text", "type": "string"},
        ]);
        let pipeline = json!([
            step(
                "score_dqm",
                json!({"columns": ["score_dqm"], "targetKeyColumn": "image_key"})
            ),
            step("score_aes", json!({})),
            step("recaption", json!({"required": false})),
        ]);
        self.spec("our-join", "our-merge", columns, pipeline)
    }

    fn recaption(&self, texts: &str, output: &str) -> Value {
        let columns =
            json!([{"name": "caption", "type": "string"}, {"name": "ocr_text", "type": "string"}]);
        let source = format!("{}{texts}/", self.uri);
        let step = json!({"recaptionMerge": {"source": source, "columns": ["caption", "ocr_text"], "mode": "Always"}});
        self.spec(
            "data/main",
            output,
            columns,
            json!([{"extractScaffold": {}}, step]),
        )
    }
}

fn compare(baseline: &Baseline, place: &Place) {
    let join = place.run(baseline, "our-join", place.join());
    baseline
        .python
        .script("baseline.py", &["equal", &join, &baseline.path("joined")]);
    let merge = place.run(baseline, "our-merge", place.merge());
    baseline
        .python
        .script("baseline.py", &["equal", &merge, &baseline.path("merged")]);
    for (texts, output) in [("texts/parquet", "our-texts"), ("texts/lines", "our-lines")] {
        let made = place.run(baseline, output, place.recaption(texts, output));
        let theirs = baseline.path("merged");
        baseline.python.script(
            "baseline.py",
            &["columns", &made, &theirs, "caption", "ocr_text"],
        );
    }
}

#[test]
fn outputs_equal_the_baselines_on_local_files_and_on_s3() {
    let Some(baseline) = Baseline::make() else {
        return;
    };
    let folder = baseline.folder.path().to_owned();
    let local = Place {
        uri: prefix(&folder),
        folder,
        environment: Vec::new(),
    };
    compare(&baseline, &local);

    let Some(server) = S3Server::start() else {
        return;
    };
    let bucket = server.create_bucket("bucket");
    let inputs = [
        "data/main",
        "data/score_dqm",
        "data/score_aes",
        "data/recaption",
        "index",
        "texts",
    ];
    upload(&server, "s3://bucket/job/", baseline.folder.path(), &inputs);
    let remote = Place {
        uri: "s3://bucket/job/".to_owned(),
        folder: bucket.join("job"),
        environment: server.environment(),
    };
    compare(&baseline, &remote);
}
