//! The manifest: written in parts, merged, adopted, sealed, and joined with the listings.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "state_fixtures.rs"]
mod fixtures;

use std::collections::BTreeMap;
use std::sync::Arc;

use fixtures::{NOW, main_meta, open, path, run, tag};
use futures::stream::{self, StreamExt};
use storage::state::diff::{Decision, Policy, RedoReason};
use storage::state::join::{Diff, Shard};
use storage::state::manifest::{Completeness, Manifest, ManifestPart, Recorded, Seal, Totals};
use storage::state::merge::OnDamage;
use storage::state::report::{ChunkReport, ReportWriter};
use storage::state::shard_lines::{MainShard, OutputShard, ShardLine, ShardStatus, write_lines};
use storage::state::{StateError, layout};
use storage::{ListPage, ObjectMeta, Store};

fn output_meta(number: u64, version: &str) -> ObjectMeta {
    ObjectMeta {
        key: path(number),
        size: 10,
        etag: tag(format!("{version}-{number}")),
    }
}

fn done(number: u64, version: &str) -> ShardLine {
    let (main, output) = (main_meta(number), output_meta(number, version));
    ShardLine {
        path: main.key,
        status: ShardStatus::Done,
        rows: 512,
        matched: 500,
        nulls: BTreeMap::from([("filter_clarity".to_owned(), 12)]),
        main: MainShard {
            size: main.size,
            etag: main.etag,
            footer_sha256: Some("f".repeat(64)),
        },
        inputs: None,
        output: Some(OutputShard {
            size: output.size,
            etag: output.etag,
            sha256: Some("0".repeat(64)),
        }),
        reason: None,
    }
}

fn failed(number: u64) -> ShardLine {
    let reason = Some("page 3 has a wrong checksum".to_owned());
    ShardLine {
        status: ShardStatus::Failed,
        output: None,
        reason,
        ..done(number, "")
    }
}

async fn write(
    store: &Arc<dyn Store>,
    run_number: u8,
    chunk: u64,
    lines: Vec<ShardLine>,
) -> ManifestPart {
    write_lines(&**store, &run(run_number), "d", chunk, lines)
        .await
        .unwrap()
}

fn seal(run_number: u8, parts: Vec<ManifestPart>) -> Seal {
    Seal {
        main: "/main/".to_owned(),
        digest: "d".to_owned(),
        run: run(run_number),
        state: Completeness::Complete,
        totals: Totals {
            shards: 1,
            ..Totals::default()
        },
        parts,
    }
}

/// Each path with the version of the output that its newest line names.
async fn versions(recorded: &Recorded, store: &Arc<dyn Store>) -> Vec<(String, String)> {
    let mut lines = recorded.lines(store, OnDamage::Fail);
    let mut found = Vec::new();
    while let Some(recorded) = lines.next_line().await.unwrap() {
        let version = recorded.line.output.map_or("failed".to_owned(), |output| {
            output.etag.0.split('-').next().unwrap().to_owned()
        });
        found.push((recorded.line.path, version));
    }
    found
}

fn expected(versions: &[(u64, &str)]) -> Vec<(String, String)> {
    versions
        .iter()
        .map(|(number, version)| (path(*number), (*version).to_owned()))
        .collect()
}

#[tokio::test]
async fn the_newest_line_of_a_path_counts() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let nothing = Recorded::load(&store).await.unwrap();
    assert!(nothing.sealed.is_none() && nothing.parts.is_empty());

    // Lines are sorted when they are written; chunks may overlap, as a canary's do.
    let first = vec![
        write(
            &store,
            1,
            0,
            vec![done(9, "v1"), done(0, "v1"), done(4, "v1")],
        )
        .await,
        write(
            &store,
            1,
            1,
            (1..4).map(|number| done(number, "v1")).collect(),
        )
        .await,
        write(&store, 1, 2, Vec::new()).await,
    ];
    let sealed = nothing.sealed.clone();
    assert!(sealed.is_none());
    Manifest::seal(&store, &nothing, seal(1, first), NOW)
        .await
        .unwrap();

    let recorded = Recorded::load(&store).await.unwrap();
    assert_eq!((recorded.parts.len(), recorded.adopted), (2, 0));
    let second = vec![write(&store, 2, 0, vec![done(2, "v2"), failed(4)]).await];
    Manifest::seal(&store, &recorded, seal(2, second), NOW)
        .await
        .unwrap();

    let recorded = Recorded::load(&store).await.unwrap();
    assert_eq!(
        versions(&recorded, &store).await,
        expected(&[
            (0, "v1"),
            (1, "v1"),
            (2, "v2"),
            (3, "v1"),
            (4, "failed"),
            (9, "v1")
        ])
    );
    let manifest = recorded.sealed.unwrap().manifest;
    assert_eq!(manifest.run, run(2));
    assert_eq!(manifest.parts.len(), 3);
    assert_eq!(
        (&*manifest.parts[0].first, &*manifest.parts[0].last),
        (&*path(0), &*path(9))
    );
}

#[tokio::test]
async fn what_a_killed_run_left_is_adopted() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let old = write(
        &store,
        1,
        0,
        (0..4).map(|number| done(number, "v1")).collect(),
    )
    .await;
    let nothing = Recorded::default();
    Manifest::seal(&store, &nothing, seal(1, vec![old]), NOW)
        .await
        .unwrap();
    let left = write(&store, 2, 5, vec![done(1, "v2"), done(7, "v2")]).await;
    let mut report = ChunkReport::new(run(2), "d".to_owned(), 6, "host".to_owned(), 9, NOW);
    ReportWriter::new(Arc::clone(&store))
        .write(&mut report, NOW)
        .await
        .unwrap();
    let cut = layout::chunk_lines(&run(2), 7);
    let whole = std::fs::read(root.path().join("out").join(&left.key)).unwrap();
    std::fs::write(root.path().join("out").join(cut), &whole[..whole.len() - 9]).unwrap();

    let recorded = Recorded::load(&store).await.unwrap();
    assert_eq!((recorded.parts.len(), recorded.adopted), (2, 1));
    assert_eq!(*recorded.parts[1], left);
    assert_eq!(
        versions(&recorded, &store).await,
        expected(&[(0, "v1"), (1, "v2"), (2, "v1"), (3, "v1"), (7, "v2")])
    );
}

#[tokio::test]
async fn parts_that_are_superseded_are_dropped() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let old = vec![
        write(
            &store,
            1,
            0,
            (0..4).map(|number| done(number, "v1")).collect(),
        )
        .await,
        write(
            &store,
            1,
            1,
            (4..8).map(|number| done(number, "v1")).collect(),
        )
        .await,
    ];
    let recorded = Recorded {
        parts: old.into_iter().map(Arc::new).collect(),
        ..Recorded::default()
    };
    let new = vec![
        write(
            &store,
            2,
            0,
            vec![done(0, "v2"), done(1, "v2"), done(5, "v2")],
        )
        .await,
        write(
            &store,
            2,
            1,
            vec![done(2, "v2"), done(3, "v2"), done(6, "v2")],
        )
        .await,
    ];
    let sealed = Manifest::seal(&store, &recorded, seal(2, new), NOW)
        .await
        .unwrap();
    let kept: Vec<_> = sealed
        .manifest
        .parts
        .iter()
        .map(|part| (part.run.clone(), part.chunk))
        .collect();
    assert_eq!(kept, [(run(1), 1), (run(2), 0), (run(2), 1)]);
}

#[tokio::test]
async fn somebody_elses_seal_is_not_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let nothing = Recorded::load(&store).await.unwrap();
    let seal_by = async |recorded: &Recorded, run_number| {
        Manifest::seal(&store, recorded, seal(run_number, vec![]), NOW).await
    };
    seal_by(&nothing, 1).await.unwrap();
    assert!(matches!(
        seal_by(&nothing, 2).await,
        Err(StateError::Storage(_))
    ));
    let recorded = Recorded::load(&store).await.unwrap();
    seal_by(&recorded, 2).await.unwrap();
    assert!(matches!(
        seal_by(&recorded, 3).await,
        Err(StateError::Storage(_))
    ));
}

#[tokio::test]
async fn a_damaged_part_costs_its_lines_or_the_merge() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let parts: Vec<_> = [
        write(&store, 1, 0, vec![done(0, "v1"), done(1, "v1")]).await,
        write(&store, 1, 1, vec![done(2, "v1")]).await,
        write(&store, 1, 2, vec![done(3, "v1")]).await,
    ]
    .into_iter()
    .map(Arc::new)
    .collect();
    let recorded = Recorded {
        parts: parts.clone(),
        ..Recorded::default()
    };
    let file = |part: &ManifestPart| root.path().join("out").join(&part.key);
    std::fs::remove_file(file(&parts[0])).unwrap();
    std::fs::write(file(&parts[1]), vec![0; parts[1].size as usize]).unwrap();

    let error = recorded
        .lines(&store, OnDamage::Fail)
        .next_line()
        .await
        .unwrap_err();
    assert!(matches!(error, StateError::Damaged { .. }), "{error:?}");
    let mut lines = recorded.lines(&store, OnDamage::Skip);
    assert_eq!(lines.next_line().await.unwrap().unwrap().line.path, path(3));
    assert!(lines.next_line().await.unwrap().is_none());
}

#[tokio::test]
async fn two_lines_of_one_shard_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    let lines = vec![done(1, "v1"), done(1, "v2")];
    let error = write_lines(&*store, &run(1), "d", 0, lines)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("two lines for \"a/000001.parquet\""),
        "{error}"
    );
}

fn pages(metas: Vec<ObjectMeta>) -> stream::BoxStream<'static, storage::Result<ListPage>> {
    let pages: Vec<_> = metas
        .chunks(3)
        .map(|shards| {
            Ok(ListPage {
                shards: shards.to_vec(),
                skipped: 1,
                nested_locks: vec!["n".to_owned()],
            })
        })
        .chain([Ok(ListPage::default())])
        .collect();
    stream::iter(pages).boxed()
}

#[tokio::test]
async fn the_join_tells_what_is_left_to_do() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root);
    write(
        &store,
        1,
        0,
        (0..20)
            .filter(|n| n % 2 == 0)
            .map(|n| done(n, "v1"))
            .collect(),
    )
    .await;
    let recorded = Recorded::load(&store).await.unwrap();

    let mut main: Vec<_> = (1..12).map(main_meta).collect();
    main[5].etag = tag("changed".to_owned());
    let output = [0, 2, 3, 6, 8, 11, 14]
        .map(|number| output_meta(number, if number == 8 { "foreign" } else { "v1" }));
    let policy = Policy {
        digest: "d".to_owned(),
        skip_existing: true,
        replaces: Vec::new(),
    };
    let lines = recorded.lines(&store, OnDamage::Skip);
    let mut diff = Diff::new(
        ("/main/", pages(main)),
        ("/out/", pages(output.into())),
        Some(lines),
        policy,
    );
    let (mut decisions, mut orphans) = (Vec::new(), Vec::new());
    while let Some(shard) = diff.next_shard().await.unwrap() {
        match shard {
            Shard::Planned(planned) => {
                assert_eq!(planned.main.key, path(decisions.len() as u64 + 1));
                decisions.push(planned.decision);
            }
            Shard::Orphan(output) => orphans.push(output.key),
        }
    }
    let create = || Decision::Create;
    let changed = Decision::Redo {
        replace: tag("v1-6".to_owned()),
        why: RedoReason::MainChanged,
    };
    assert_eq!(
        decisions,
        [
            create(),              // 1: nowhere
            Decision::Skip,        // 2: vouched for
            Decision::CheckFooter, // 3: there, without a line
            create(),              // 4: a line, but deleted
            create(),
            changed,
            create(),
            Decision::CheckFooter, // 8: another version than the line's
            create(),
            create(),
            Decision::CheckFooter, // 11
        ]
    );
    assert_eq!(orphans, [path(0), path(14)]);
    assert_eq!((diff.nested_locks().len(), diff.skipped_in_main()), (3, 4));
}

#[tokio::test]
async fn listings_out_of_order_are_refused() {
    let policy = Policy {
        digest: "d".to_owned(),
        skip_existing: true,
        replaces: Vec::new(),
    };
    for order in [vec![0, 2, 1], vec![0, 1, 2, 2], vec![3, 4, 5, 1]] {
        let main = order.into_iter().map(main_meta).collect();
        let (main, output) = (("/main/", pages(main)), ("/out/", pages(Vec::new())));
        let mut diff = Diff::new(main, output, None, policy.clone());
        let error = loop {
            match diff.next_shard().await {
                Ok(shard) => assert!(shard.is_some(), "no error"),
                Err(error) => break error,
            }
        };
        assert!(
            error.to_string().contains("/main/ is not in byte order"),
            "{error}"
        );
    }
}

/// Many chunks are adopted after a killed run, and read line by line once they are sealed.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_of_many_chunks_is_adopted_and_read() {
    for (shards, a_chunk) in [(10_000_u64, 100_u64), (10_000, 4_000)] {
        let root = tempfile::tempdir().unwrap();
        let store = open(&root);
        let mut parts = Vec::new();
        for chunk in 0..shards.div_ceil(a_chunk) {
            let lines = (chunk * a_chunk..shards.min((chunk + 1) * a_chunk))
                .map(|number| {
                    let mut line = done(number, "v1");
                    for column in 0..20 {
                        line.nulls
                            .insert(format!("filter_number_{column}"), number % 512);
                    }
                    line.output.as_mut().unwrap().sha256 = Some(format!("{:064x}", number * 7919));
                    line
                })
                .collect();
            parts.push(write(&store, 1, chunk, lines).await);
        }
        let adopted = Recorded::load(&store).await.unwrap();
        Manifest::seal(&store, &Recorded::default(), seal(1, parts), NOW)
            .await
            .unwrap();
        let recorded = Recorded::load(&store).await.unwrap();
        let mut lines = recorded.lines(&store, OnDamage::Fail);
        let mut count = 0;
        while lines.next_line().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!((count, adopted.adopted), (shards, recorded.parts.len()));
    }
}
