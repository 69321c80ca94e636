//! Plan, reports and sentinel: written and read back; and the examples of the documentation.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "state_fixtures.rs"]
mod fixtures;

use std::collections::BTreeMap;
use std::sync::Arc;

use fixtures::{NOW, main_meta, open, path, run, tag};
use storage::state::batch::{Batch, WorkItem};
use storage::state::clock::SystemClock;
use storage::state::fence::{DEFAULT_MAX_LOOK_AGE, Fence, FenceError};
use storage::state::item_lines::{read_lines, write_item_lines};
use storage::state::lock::LockFile;
use storage::state::manifest::{Manifest, Totals};
use storage::state::plan::{
    Existing, ExistingAction, PlanHeader, PlanLine, PlanReader, PlanSummary, PlanWriter,
};
use storage::state::report::{
    ChunkReport, ChunkState, ColumnCounts, Counts, Failure, ReportWriter, SourceCounts,
};
use storage::state::sentinel::Sentinel;
use storage::state::shard_lines::{LinesHeader, MainShard, ShardLine, ShardStatus};
use storage::state::{StateError, frozen_job, layout, limits};
use storage::{Payload, PutCondition, Store};

fn plan_line(chunk: u64, number: u64) -> PlanLine {
    let main = main_meta(number);
    let existing = number.is_multiple_of(3).then(|| Existing {
        size: 10,
        etag: tag("old".to_owned()),
        action: ExistingAction::Replace,
    });
    PlanLine {
        chunk,
        path: main.key,
        size: main.size,
        etag: main.etag,
        rows: None,
        inputs: None,
        existing,
    }
}

#[tokio::test]
async fn a_chunk_is_read_from_its_part_of_the_plan() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let mut writer =
        PlanWriter::with_chunks_per_part(Arc::clone(&store), run(1), "d".to_owned(), 4);
    for number in 0..50 {
        writer.push(&plan_line(number / 5, number)).unwrap();
    }
    let written = store.list_folder("").await.unwrap();
    assert!(
        written.is_empty(),
        "written before it is whole: {written:?}"
    );
    let summary = writer.finish(NOW).await.unwrap();
    assert_eq!((summary.chunks, summary.parts, summary.shards), (10, 3, 50));
    assert_eq!(
        PlanSummary::read(&*store, &run(1)).await.unwrap().as_ref(),
        Some(&summary)
    );

    for chunk in 0..10 {
        let lines = PlanReader::read_range(&*store, &summary, chunk..chunk + 1)
            .await
            .unwrap();
        let expected: Vec<_> = (chunk * 5..chunk * 5 + 5)
            .map(|number| plan_line(chunk, number))
            .collect();
        assert_eq!(lines, expected);
    }
    let mut last = PlanReader::open_part(&*store, &summary, 2).await.unwrap();
    assert_eq!(last.header().chunks, 8..12);
    assert_eq!(std::iter::from_fn(|| last.next_line().unwrap()).count(), 10);
    assert!(
        PlanReader::read_range(&*store, &summary, 12..13)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_range_of_chunks_is_read_across_parts() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let mut writer =
        PlanWriter::with_chunks_per_part(Arc::clone(&store), run(1), "d".to_owned(), 4);
    for number in 0..40 {
        writer.push(&plan_line(number / 4, number)).unwrap();
    }
    let kept = Totals {
        shards: 3,
        ..Totals::default()
    };
    writer.describe(Some(512.5), vec!["old".to_owned()], Some(kept));
    let summary = writer.finish(NOW).await.unwrap();
    assert_eq!(summary.rows_per_shard, Some(512.5));
    assert_eq!(summary.replaces, ["old"]);
    assert_eq!(summary.kept, Some(kept));
    let read = PlanSummary::read(&*store, &run(1)).await.unwrap();
    assert_eq!(read.as_ref(), Some(&summary));

    for chunks in [0..1, 2..3, 3..5, 0..10, 7..10, 4..8] {
        let lines = PlanReader::read_range(&*store, &summary, chunks.clone()).await;
        let expected: Vec<_> = (chunks.start * 4..chunks.end * 4)
            .map(|number| plan_line(number / 4, number))
            .collect();
        assert_eq!(lines.unwrap(), expected, "{chunks:?}");
    }
    for chunks in [9..11, 10..11, 12..13] {
        let error = PlanReader::read_range(&*store, &summary, chunks).await;
        assert!(error.is_err());
    }
}

/// A plan of two chunks, one a part, whose shards have such a number.
async fn small_plan(store: &Arc<dyn Store>, number: u64) -> PlanSummary {
    let mut writer = PlanWriter::with_chunks_per_part(Arc::clone(store), run(1), "d".to_owned(), 1);
    for chunk in 0..2 {
        writer.push(&plan_line(chunk, number + chunk)).unwrap();
    }
    writer.write_finished().await.unwrap();
    writer.finish(NOW).await.unwrap()
}

#[tokio::test]
async fn two_planners_of_a_run_make_one_plan() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let first = small_plan(&store, 10).await;
    // A planner that slept writes its parts, and maybe its summary, after the plan is whole.
    let second = small_plan(&store, 20).await;
    assert_eq!(
        second, first,
        "who comes second goes by the plan that is there"
    );
    let lines = PlanReader::read_range(&*store, &second, 0..2)
        .await
        .unwrap();
    assert_eq!(lines, [plan_line(0, 10), plan_line(1, 11)]);
}

#[tokio::test]
async fn parts_are_what_the_summary_names() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let plan = small_plan(&store, 10).await;
    let folder = std::path::Path::new(store.uri());
    let path = |number| folder.join(plan.part_key(number));
    std::fs::copy(path(1), path(0)).unwrap();
    let Err(error) = PlanReader::open_part(&*store, &plan, 0).await else {
        panic!("a part was replaced");
    };
    assert!(
        error.to_string().contains("its bytes are not those"),
        "{error}"
    );

    // Plans of former releases name no hashes.
    let former = PlanSummary {
        part_hashes: Vec::new(),
        ..plan.clone()
    };
    std::fs::copy(path(1), folder.join(former.part_key(1))).unwrap();
    let lines = PlanReader::read_range(&*store, &former, 1..2).await;
    assert_eq!(lines.unwrap(), [plan_line(1, 11)]);

    let summary = folder.join(layout::plan_summary(&run(1)));
    let text = std::fs::read_to_string(&summary).unwrap();
    let hash = &plan.part_hashes[0];
    let others = [
        (text.replace(hash, "../../../../../x"), "no hash of a part"),
        (text.replace("\"parts\": 2", "\"parts\": 3"), "names 2"),
        (
            text.replace(&run(1).to_string(), &run(2).to_string()),
            "is of run",
        ),
    ];
    for (text, expected) in others {
        std::fs::write(&summary, text).unwrap();
        let error = PlanSummary::read(&*store, &run(1)).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_batch_is_written_once() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let batch = |items: &[[u64; 2]]| {
        let items = items.iter().map(|item| WorkItem::from(*item));
        Batch::new(run(1), "d".to_owned(), 7, 2, items)
    };
    assert_eq!(Batch::read(&*store, &run(1), 7, 2).await.unwrap(), None);
    let first = batch(&[[0, 5], [5, 6], [9, 20]]);
    assert_eq!(first.clone().write(&*store).await.unwrap(), first);
    assert_eq!(first.item(2), Some(WorkItem { first: 9, end: 20 }));
    assert_eq!(first.item(3), None);
    // The same again, and other items by somebody who knows nothing of these.
    assert_eq!(first.clone().write(&*store).await.unwrap(), first);
    assert_eq!(batch(&[[0, 5]]).write(&*store).await.unwrap(), first);
    let read = Batch::read(&*store, &run(1), 7, 2).await.unwrap();
    assert_eq!(read, Some(first));
    assert_eq!(Batch::read(&*store, &run(1), 7, 1).await.unwrap(), None);

    for wrong in [&[[3, 3]][..], &[[0, 5], [4, 6]], &[[5, 6], [0, 5]]] {
        let error = batch(wrong).write(&*store).await.unwrap_err().to_string();
        assert!(error.contains("is no batch of work items"), "{error}");
    }
    // A file that was copied to another place.
    let (from, to) = (layout::batch(&run(1), 7, 2), layout::batch(&run(1), 8, 1));
    let folder = std::path::Path::new(store.uri());
    std::fs::copy(folder.join(from), folder.join(to)).unwrap();
    let error = Batch::read(&*store, &run(1), 8, 1).await.unwrap_err();
    assert!(
        error.to_string().contains("attempt 2 at batch 7"),
        "{error}"
    );
}

#[tokio::test]
async fn a_manifest_is_frozen_once() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    assert_eq!(frozen_job::read(&*store, &run(1)).await.unwrap(), None);
    let manifest = |prefix: &str| {
        serde_json::json!({
            "apiVersion": "sidecarjob.dev/v1alpha1", "kind": "SidecarJob",
            "metadata": {"name": "photos", "namespace": "team"},
            "spec": {"output": {"prefix": prefix}},
        })
    };
    for prefix in ["s3://bucket/out/", "s3://bucket/out/", "s3://bucket/other/"] {
        let frozen = frozen_job::freeze(&*store, &run(1), &manifest(prefix)).await;
        assert_eq!(frozen.unwrap(), manifest("s3://bucket/out/"));
    }
    let read = frozen_job::read(&*store, &run(1)).await.unwrap();
    assert_eq!(read, Some(manifest("s3://bucket/out/")));
    let error = frozen_job::freeze(&*store, &run(2), &serde_json::json!({"kind": "x"})).await;
    assert!(error.unwrap_err().to_string().contains("no apiVersion"));
}

#[tokio::test]
async fn a_report_of_an_item_names_its_chunks() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let new = || ChunkReport::new(run(1), "d".to_owned(), 3, "pod".to_owned(), 9, NOW);
    assert_eq!(new().range(), 3..4);
    let mut report = new().of_item(WorkItem { first: 5, end: 14 }, 2);
    assert_eq!((report.range(), report.attempt), (5..14, Some(2)));
    ReportWriter::new(Arc::clone(&store))
        .write(&mut report, NOW)
        .await
        .unwrap();
    let read = ChunkReport::read(&*store, &run(1), 5).await.unwrap();
    assert_eq!(read, Some(report));
}

/// Lines of two workers on one item: what either has done stays done.
#[tokio::test]
async fn lines_that_were_written_meanwhile_are_merged() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let line = |number: u64, status| {
        let main = main_meta(number);
        ShardLine {
            path: main.key,
            status,
            rows: 10,
            matched: 9,
            nulls: BTreeMap::new(),
            main: MainShard {
                size: main.size,
                etag: main.etag,
                footer_sha256: None,
            },
            inputs: None,
            output: None,
            reason: None,
        }
    };
    use ShardStatus::{Done, Failed};
    let write = async |lines: Vec<ShardLine>, known| {
        write_item_lines(&*store, &run(1), "d", 4, lines, known)
            .await
            .unwrap()
    };
    assert_eq!(read_lines(&*store, &run(1), "d", 4).await.unwrap(), None);
    write(vec![line(0, Done), line(1, Failed), line(2, Done)], None).await;
    let first = read_lines(&*store, &run(1), "d", 4).await.unwrap().unwrap();
    assert_eq!(first.lines.len(), 3);
    // The next attempt knows them; another knows nothing of either.
    let known = Some(first.etag.clone());
    write(
        vec![line(0, Done), line(1, Done), line(2, Done), line(3, Failed)],
        known,
    )
    .await;
    let part = write(vec![line(1, Failed), line(3, Done), line(5, Failed)], None).await;
    let last = read_lines(&*store, &run(1), "d", 4).await.unwrap().unwrap();
    let all = [
        line(0, Done),
        line(1, Done),
        line(2, Done),
        line(3, Done),
        line(5, Failed),
    ];
    assert_eq!(last.lines, all);
    assert_eq!((part.shards, part.last), (5, path(5)));
    // Of another pipeline nothing counts.
    let other = read_lines(&*store, &run(1), "e", 4).await.unwrap().unwrap();
    assert!(other.lines.is_empty());
    let file = std::path::Path::new(store.uri()).join(layout::chunk_lines(&run(1), 4));
    std::fs::write(file, "torn").unwrap();
    let torn = read_lines(&*store, &run(1), "d", 4).await.unwrap().unwrap();
    assert!(torn.lines.is_empty());
}

#[tokio::test]
async fn chunks_of_a_plan_come_in_order() {
    let root = tempfile::tempdir().unwrap();
    for wrong in [0, 3] {
        let mut writer = PlanWriter::new(open(&root), run(1), "d".to_owned());
        writer.push(&plan_line(0, 0)).unwrap();
        writer.push(&plan_line(1, 1)).unwrap();
        let error = writer.push(&plan_line(wrong, 2)).unwrap_err();
        assert!(error.to_string().contains("can't follow"), "{error}");
    }
}

#[tokio::test]
async fn reports_are_rewritten_with_one_request_each() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let mut report = ChunkReport::new(run(1), "d".to_owned(), 3, "pod-3".to_owned(), 100, NOW);
    let mut writer = ReportWriter::new(Arc::clone(&store));
    writer.write(&mut report, NOW).await.unwrap();
    let before = store.requests();
    for second in 1..=5 {
        report.counts.shards_done += 1;
        report.counts.seconds.shards += 0.5;
        report.failures.extend((0..4).map(|number| Failure {
            path: path(number),
            reason: "broken".to_owned(),
        }));
        writer
            .write(&mut report, NOW + time::Duration::seconds(second))
            .await
            .unwrap();
    }
    let after = store.requests();
    assert_eq!((after.put - before.put, after.head - before.head), (5, 0));
    assert_eq!(report.failures.len(), 10);
    let read = ChunkReport::read(&*store, &run(1), 3)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(read, report);
    assert_eq!(read.updated_at, NOW + time::Duration::seconds(5));
    assert_eq!(ChunkReport::read(&*store, &run(1), 4).await.unwrap(), None);

    // A later attempt at the chunk takes the file over.
    let mut again = ChunkReport {
        state: ChunkState::Done,
        ..report
    };
    ReportWriter::new(Arc::clone(&store))
        .write(&mut again, NOW)
        .await
        .unwrap();
    assert_eq!(
        ChunkReport::read(&*store, &run(1), 3).await.unwrap(),
        Some(again)
    );
}

#[test]
fn counts_add_up_and_keep_fixed_costs_apart() {
    let mut total = Counts::default();
    assert_eq!(
        (total.match_rate(), total.seconds_per_shard()),
        (None, None)
    );
    for matched in [10, 30] {
        let mut chunk = Counts {
            shards_done: 4,
            rows: 40,
            matched,
            ..Default::default()
        };
        chunk.seconds.start = 1.0;
        chunk.seconds.index_pass = 2.0;
        chunk.seconds.shards = 6.0;
        chunk.columns.insert(
            "clarity".to_owned(),
            ColumnCounts {
                populated: matched,
                null: 40 - matched,
                error: 1,
            },
        );
        chunk.columns.insert(
            "luma".to_owned(),
            ColumnCounts {
                populated: 40,
                null: 0,
                error: 0,
            },
        );
        chunk
            .sources
            .insert("agency".to_owned(), SourceCounts { rows: 40, matched });
        total.add(&chunk);
    }
    assert_eq!(total.match_rate(), Some(0.5));
    assert_eq!(total.null_rate("clarity"), Some(0.5));
    assert_eq!(total.null_rate("absent"), None);
    assert_eq!(total.greatest_null_rate(), Some(("clarity", 0.5)));
    assert_eq!(
        (total.fixed_seconds(), total.seconds_per_shard()),
        (6.0, Some(1.5))
    );
    assert_eq!(
        total.sources["agency"],
        SourceCounts {
            rows: 80,
            matched: 40
        }
    );
}

#[tokio::test]
async fn the_sentinel_comes_and_goes() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    assert_eq!(Sentinel::read(&*store).await.unwrap(), None);
    Sentinel::remove(&*store).await.unwrap();
    for shards in [1, 2] {
        let sentinel = Sentinel::new(run(1), "d".to_owned(), shards, 512, NOW, "0".repeat(64));
        sentinel.write(&*store).await.unwrap();
        assert_eq!(Sentinel::read(&*store).await.unwrap(), Some(sentinel));
    }
    Sentinel::remove(&*store).await.unwrap();
    assert_eq!(Sentinel::read(&*store).await.unwrap(), None);
}

/// The examples below the heading of each format in the documentation, line by line where
/// they are lines.
fn documented(heading: &str) -> Vec<serde_json::Value> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/state-files.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once(&format!("\n## {heading}")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    section
        .split("```json\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap())
        .flat_map(|block| serde_json::Deserializer::from_str(block).into_iter())
        .map(Result::unwrap)
        .collect()
}

/// Fails if an example doesn't parse, or has a field that the type hasn't.
fn is_documented_as<T>(example: &serde_json::Value)
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    let parsed: T = serde_json::from_value(example.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&parsed).unwrap(), example);
}

#[test]
fn the_documented_examples_are_the_formats() {
    let [lock] = &documented("`writer.json`")[..] else {
        panic!()
    };
    is_documented_as::<LockFile>(lock);
    let [header, line, existing, summary] = &documented("`plan/")[..] else {
        panic!()
    };
    is_documented_as::<PlanHeader>(header);
    is_documented_as::<PlanLine>(line);
    is_documented_as::<PlanLine>(existing);
    is_documented_as::<PlanSummary>(summary);
    let [batch] = &documented("`batches/")[..] else {
        panic!()
    };
    is_documented_as::<Batch>(batch);
    let [report] = &documented("`chunks/<n>.json`")[..] else {
        panic!()
    };
    is_documented_as::<ChunkReport>(report);
    let [header, done, failed] = &documented("`chunks/<n>.jsonl.zst`")[..] else {
        panic!()
    };
    is_documented_as::<LinesHeader>(header);
    is_documented_as::<ShardLine>(done);
    is_documented_as::<ShardLine>(failed);
    let [manifest] = &documented("`manifest.json`")[..] else {
        panic!()
    };
    is_documented_as::<Manifest>(manifest);
    let [sentinel] = &documented("`_SUCCESS`")[..] else {
        panic!()
    };
    is_documented_as::<Sentinel>(sentinel);
}

/// Somebody else's file in the place of a state file.
async fn plant(store: &dyn Store, key: &str, bytes: Vec<u8>) {
    let payload = Payload::new(bytes);
    store.put(key, payload, PutCondition::Create).await.unwrap();
}

fn is_left_alone<T: std::fmt::Debug>(read: Result<T, StateError>, key: &str) {
    let error = read.unwrap_err();
    assert!(matches!(error, StateError::TooLarge { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(key) && text.contains("no more than"),
        "{text}"
    );
}

#[tokio::test]
async fn files_that_are_too_large_are_not_read() {
    let root = tempfile::tempdir().unwrap();
    let (store, run) = (open(&root), run(1));
    let other = tempfile::tempdir().unwrap();
    let plan = small_plan(&open(&other), 10).await;
    let oversized = |limit: u64| vec![b' '; usize::try_from(limit).unwrap() + 1];
    let keys = [
        (layout::WRITER.to_owned(), limits::LOCK),
        (layout::MANIFEST.to_owned(), limits::MANIFEST),
        (layout::SENTINEL.to_owned(), limits::SENTINEL),
        (layout::frozen_job(&run), limits::FROZEN_JOB),
        (layout::plan_summary(&run), limits::PLAN_SUMMARY),
        (plan.part_key(0), limits::PLAN_PART.file),
        (layout::batch(&run, 0, 1), limits::BATCH),
        (layout::chunk_report(&run, 0), limits::REPORT),
        (layout::chunk_lines(&run, 0), limits::SHARD_LINES.file),
    ];
    for (key, limit) in &keys {
        plant(&*store, key, oversized(*limit)).await;
    }
    let before = store.requests().bytes_read;
    let (clock, age) = (Arc::new(SystemClock::default()), DEFAULT_MAX_LOOK_AGE);
    let fence = Fence::follow(Arc::clone(&store), &run, 1, clock, age).await;
    let Err(FenceError::Unknown(error)) = fence else {
        panic!("{fence:?}");
    };
    is_left_alone(Err::<(), _>(error), layout::WRITER);
    let store = &*store;
    is_left_alone(Manifest::load(store).await, layout::MANIFEST);
    is_left_alone(Sentinel::read(store).await, layout::SENTINEL);
    is_left_alone(frozen_job::read(store, &run).await, "job.json");
    is_left_alone(PlanSummary::read(store, &run).await, "plan.json");
    let part = PlanReader::open_part(store, &plan, 0).await;
    is_left_alone(part.map(|part| part.header().clone()), "part-");
    is_left_alone(Batch::read(store, &run, 0, 1).await, "batches/");
    is_left_alone(ChunkReport::read(store, &run, 0).await, "chunks/");
    is_left_alone(read_lines(store, &run, "d", 0).await, "chunks/");
    assert_eq!(store.requests().bytes_read, before, "a body was read");
}

#[tokio::test]
async fn a_report_with_more_than_workers_write_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let report = |chunk, change: &dyn Fn(&mut Counts)| {
        let (run, digest, pod) = (run(1), "d".to_owned(), "pod".to_owned());
        let mut report = ChunkReport::new(run, digest, chunk, pod, 9, NOW);
        change(&mut report.counts);
        report
    };
    let names = |count: usize| (0..count).map(|number| format!("{number}"));
    let reasons = |count: usize| {
        let errors = names(count).map(|name| (name, Default::default()));
        errors.collect::<BTreeMap<_, _>>()
    };
    let columns = |count: usize| {
        let columns = names(count).map(|name| (name, ColumnCounts::default()));
        columns.collect::<BTreeMap<_, _>>()
    };
    let reports = [
        report(0, &|counts| counts.row_errors = reasons(20_000)),
        report(1, &|counts| counts.columns = columns(limits::COLUMNS + 1)),
        report(2, &|counts| {
            let long = "x".repeat(limits::NAME + 1);
            counts.columns.insert(long, ColumnCounts::default());
        }),
    ];
    for report in reports {
        let key = layout::chunk_report(&report.run, report.chunk);
        plant(&*store, &key, serde_json::to_vec(&report).unwrap()).await;
        is_left_alone(
            ChunkReport::read(&*store, &run(1), report.chunk).await,
            &key,
        );
    }
    // A writer keeps to it by leaving out.
    let mut many = report(3, &|counts| counts.row_errors = reasons(100));
    let mut writer = ReportWriter::new(Arc::clone(&store));
    writer.write(&mut many, NOW).await.unwrap();
    let read = ChunkReport::read(&*store, &run(1), 3)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(read.counts.row_errors.len(), limits::REASONS);
}
