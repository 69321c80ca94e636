//! What a pod says, and with which code, when its item can't be done.

use harness::dataset::{Shape, full_job, path};
use harness::run_files::Wanted;
use storage::ETag;
use storage::state::layout;
use storage::state::report::ChunkState;
use storage::state::shard_lines::ShardStatus;
use storage::state::side_inputs::SideInput;

use crate::operator::{Operator, SHAPE};
use crate::place::Place;
use crate::worker::Worker;

#[test]
fn a_poisonous_shard_costs_itself() {
    let place = Place::folder(Shape::default());
    let poisoned = path(4);
    std::fs::write(place.path("main").join(&poisoned), "garbage").expect("write");
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 12]]);
    for (done, kept) in [(11, 0), (0, 11)] {
        operator.run(0, 1);
        assert_eq!(place.names("out").len(), 11);
        let report = operator.report(0).expect("a report");
        assert_eq!(report.state, ChunkState::Done);
        assert_eq!(
            (report.counts.shards_done, report.counts.shards_skipped),
            (done, kept)
        );
        assert_eq!(report.counts.shards_failed, 1);
        assert_eq!(report.failures[0].path, poisoned);
        let lines = operator.lines(0);
        assert_eq!(lines.len(), 12);
        let failed: Vec<_> = lines
            .iter()
            .filter(|line| line.status == ShardStatus::Failed)
            .collect();
        assert_eq!(failed.len(), 1);
        assert_eq!(
            (&failed[0].path, failed[0].reason.is_some()),
            (&poisoned, true)
        );
        let message = operator.message();
        assert_eq!(message["failed"], 1);
        assert!(
            message["reason"]
                .as_str()
                .expect("a reason")
                .starts_with(&poisoned)
        );
    }
}

/// A file of a stranger that has come since the plan was made.
#[test]
fn a_foreign_shard_is_left_alone() {
    let place = Place::folder(Shape::default());
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 12]]);
    let foreign = place.path("out").join(path(5));
    std::fs::create_dir_all(foreign.parent().expect("a folder")).expect("a folder");
    std::fs::copy(place.path("main").join(path(5)), &foreign).expect("copy");
    operator.run(0, 1);
    let same = std::fs::read(&foreign).expect("read");
    assert_eq!(
        same,
        std::fs::read(place.path("main").join(path(5))).expect("read")
    );
    let message = operator.message();
    assert_eq!(
        (&message["done"], &message["failed"]),
        (&11.into(), &1.into())
    );
    assert!(
        message["reason"]
            .as_str()
            .expect("a reason")
            .contains("another program wrote it")
    );
}

/// Whoever may write below the output prefix must not have the worker's identity read, or sign
/// requests to, what they name.
#[test]
fn a_forged_manifest_is_refused() {
    let place = Place::folder(SHAPE);
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 36]]);
    let run = operator.files.run.clone();
    let file = place.path("out").join(layout::frozen_job(&run));
    let honest = std::fs::read_to_string(&file).expect("read");
    let index = place.uri("index");
    let main = place.uri("main");
    for (from, to) in [
        (&index, place.uri("secrets")),
        (&main, place.uri("elsewhere")),
    ] {
        let forged = honest.replace(from.as_str(), &to);
        assert_ne!(forged, honest, "{from}");
        std::fs::write(&file, &forged).expect("write");
        let words = [
            "the frozen manifest is of the pipeline",
            &operator.files.digest,
        ];
        // It is not even looked whether what it names is there.
        operator.run(0, 2).says(&words);
        let report = operator.report(0).expect("a report");
        assert!(report.is_permanent && report.digest == operator.files.digest);

        // Nor is it with a batch and a plan that fit.
        let job: serde_json::Value = serde_json::from_str(&forged).expect("JSON");
        let spec = serde_json::from_value(job["spec"].clone()).expect("a spec");
        let digest = crds::digest::pipeline_digest(&spec).expect("a digest");
        let files = [layout::batch(&run, 0, 1), layout::plan_summary(&run)];
        let kept = files.map(|key| {
            let file = place.path("out").join(key);
            let text = std::fs::read_to_string(&file).expect("read");
            std::fs::write(&file, text.replace(&operator.files.digest, &digest)).expect("write");
            (file, text)
        });
        operator.run(0, 2).says(&[&digest, "plan it again"]);
        for (file, text) in kept {
            std::fs::write(file, text).expect("write");
        }
    }
    // A server that it names is not asked: the pod's environment says how storage is reached.
    let forged = honest.replace(
        "\"spec\": {",
        "\"spec\": { \"storage\": { \"endpoint\": \"http://127.0.0.1:1\" },",
    );
    assert_ne!(forged, honest);
    std::fs::write(&file, forged).expect("write");
    operator.run(0, 0);
}

/// An index that was replaced since the plan was made: nothing is made from it, and a fresh plan
/// can do it.
#[test]
fn a_side_input_of_another_version_than_planned_is_not_mixed_in() {
    let place = Place::folder(Shape::default());
    let planned = SideInput {
        uri: "index/".to_owned(),
        files: 2,
        size: 4711,
        etag: ETag::from("former".to_owned()),
        sha256: String::new(),
    };
    let wanted = Wanted {
        side_inputs: Some(vec![planned]),
        ..Wanted::default()
    };
    let text = full_job(&place.root(), &place.uri("out"));
    let operator = Operator::plan_job(&place, "out", &text, wanted);
    operator.batch(&[[0, 12]]);
    let words = [
        "has changed since run",
        "4711 bytes",
        "former",
        "another run",
    ];
    operator.run(0, 5).says(&words);
    let report = operator.report(0).expect("a report");
    assert_eq!(report.state, ChunkState::Failed);
    assert!(!report.is_permanent);
    assert!(place.names("out").is_empty());
}

#[test]
fn what_can_never_work_is_told() {
    let place = Place::folder(SHAPE);
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 10], [10, 36]]);
    let run = operator.files.run.clone();
    let refused = |worker: Worker, words: &[&str]| {
        worker.run().expect(2).says(words);
        let message = operator.message();
        let reason = message["reason"].as_str().expect("a reason");
        assert!(words.iter().all(|word| reason.contains(word)), "{reason}");
    };
    refused(
        operator.pod_of(0, 1, 2),
        &["index 2 is out of range", "2 items"],
    );
    refused(
        operator.pod_of(1, 1, 0),
        &["no attempt 1 at batch 1 of run ", run.as_str(), "--batch"],
    );
    refused(operator.pod_of(0, 2, 0), &["no attempt 2 at batch 0"]);

    let root = place.path("out");
    let broken = |key: &str, text: Option<&str>, words: &[&str]| {
        let file = root.join(key);
        let whole = std::fs::read(&file).expect("read");
        match text {
            Some(text) => std::fs::write(&file, text).expect("write"),
            None => std::fs::remove_file(&file).expect("remove"),
        }
        refused(operator.pod(0), words);
        std::fs::write(&file, whole).expect("write");
    };
    let batch = layout::batch(&run, 0, 1);
    broken(
        &batch,
        Some("{\"version\": 1"),
        &["is no batch of work items"],
    );
    broken(&batch, Some("{\"version\": 7}"), &["format version 7"]);
    let item = format!(
        "{{\"version\":1,\"run\":\"{run}\",\"digest\":\"{}\",\"batch\":0,\"attempt\":1,\"items\":[[30,40]]}}",
        operator.files.digest
    );
    broken(&batch, Some(&item), &["item [30, 40]", "36 chunks"]);
    let other = item
        .replace(&operator.files.digest, "0123")
        .replace("[30,40]", "[30,36]");
    broken(&batch, Some(&other), &["0123", "plan it again"]);
    broken(&layout::plan_summary(&run), None, &["no whole plan of run"]);
    broken(
        &operator.files.plan.part_key(1),
        None,
        &["the plan is broken", "part-00000001"],
    );
    broken(
        &operator.files.plan.part_key(1),
        Some("torn"),
        &["is no part of a plan"],
    );
    let job = layout::frozen_job(&run);
    broken(&job, None, &["no frozen manifest"]);
    broken(&job, Some("{}"), &["has no apiVersion"]);
    let text = std::fs::read_to_string(root.join(&job)).expect("read");
    broken(
        &job,
        Some(&text.replace("extractScaffold", "extractScafold")),
        &["mistakes", "extractScafold"],
    );
    broken(
        &job,
        Some(&text.replace("OverwriteAll", "UpdateIfNull")),
        &["different releases"],
    );
    broken(
        &job,
        Some(&text.replace("/index/", "/nothing/")),
        &["somebody has replaced the manifest"],
    );

    let unset = Worker::new(&["chunk"]).environment(&place.environment());
    let mut arguments = operator.files.arguments(0, 1, 0);
    arguments.truncate(arguments.len() - 2);
    let unset = arguments
        .iter()
        .fold(unset, |unset, text| unset.argument(text));
    unset
        .run()
        .expect(2)
        .says(&["JOB_COMPLETION_INDEX", "--index"]);
    Worker::new(&["chunk"]).arguments("--run x").run().expect(2);
    assert!(place.names("out").is_empty());
    operator.run(0, 0);
}

#[test]
fn a_store_that_refuses_is_told_from_a_mistake() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 36]]);
    let wrong = [("AWS_SECRET_ACCESS_KEY", "wrong".to_owned())];
    let ended = operator.pod(0).environment(&wrong).run().expect(5);
    ended.says(&["s3://bucket/out/", "access refused"]);
    assert!(
        operator.message()["reason"]
            .as_str()
            .expect("a reason")
            .contains("access refused")
    );
    let style = [("SIDECARJOB_S3_PATH_STYLE", "perhaps".to_owned())];
    let ended = operator.pod(0).environment(&style).run().expect(2);
    ended.says(&["SIDECARJOB_S3_PATH_STYLE", "perhaps"]);
}
