//! Locations: folders, links, prefixes, locks and the stores behind them.

use std::os::unix::fs::symlink;
use std::path::Path;

use harness::dataset::{Shape, path, texts, write_table};

use crate::fixture::Fixture;
use crate::worker::{Ended, Worker};

fn run_to(fixture: &Fixture, text: &str, output: &str) -> Ended {
    fixture
        .worker("run", text)
        .in_folder(&fixture.path(""))
        .argument("--output-prefix")
        .argument(output)
        .run()
}

/// A lock that somebody on another machine holds, for an hour from now.
fn hold(folder: &Path) {
    let stamp = |seconds: i64| {
        let time = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        time.format(&time::format_description::well_known::Rfc3339)
            .expect("a time")
    };
    let lock = serde_json::json!({
        "version": 1,
        "state": "held",
        "holder": {"name": "shard-worker", "instance": "0123", "host": "another-machine", "pid": 4711},
        "run": "20250601-101500-k3f7qa",
        "digest": "00",
        "epoch": 7,
        "acquired_at": stamp(-1),
        "renewed_at": stamp(-1),
        "expires_at": stamp(3600),
    });
    std::fs::create_dir_all(folder.join("_sidecar")).expect("a folder");
    std::fs::write(folder.join("_sidecar/writer.json"), lock.to_string()).expect("write");
}

/// Main grew to 4, 8, 16 shards where the two were written in different ways.
#[test]
fn an_output_inside_an_input_is_refused_whatever_leads_to_it() {
    let fixture = Fixture::new();
    let root = fixture.root();
    symlink(fixture.path("main"), fixture.path("link")).expect("a link");
    symlink(fixture.path("."), fixture.path("all")).expect("a link");
    let absolute = fixture.full();
    let relative = absolute.replace(&root, ".");
    let through_link = absolute.replace("/main/", "/link/");
    let before = fixture.files("main");
    for text in [&absolute, &relative, &through_link] {
        for output in [
            "main/inside".to_owned(),
            "./main".to_owned(),
            "index/../main/inside/".to_owned(),
            "link/inside".to_owned(),
            ".".to_owned(),
            "all/".to_owned(),
            "all/scores/inside".to_owned(),
            "index/more".to_owned(),
            "captions".to_owned(),
            format!("{root}/link/inside/"),
            format!("file://{root}/m%61in/inside"),
        ] {
            let ended = run_to(&fixture, text, &output).expect(2);
            ended.says(&["lie inside one another", "choose another output prefix"]);
        }
    }
    assert!(before == fixture.files("main"));
    assert!(!fixture.path("index/more").exists() && !fixture.path("_sidecar").exists());
    // By whatever way, it is one output.
    for (text, output) in [
        (&absolute, "out"),
        (&absolute, "all/out"),
        (&absolute, "main/../out"),
    ] {
        run_to(&fixture, text, output).expect(0);
    }
    assert_eq!(fixture.shards("out").len(), 12);
}

#[test]
fn an_output_inside_the_sidecar_prefix_is_refused_by_flag_too() {
    let fixture = Fixture::new();
    symlink(".", fixture.path("here")).expect("a link");
    let named = format!(
        "    sidecarPrefix: {}/team/\n    keyColumn:",
        fixture.root()
    );
    let text = fixture.join().replacen("    keyColumn:", &named, 1);
    std::fs::create_dir_all(fixture.path("team/deep")).expect("a folder");
    for output in ["team/inside", "here/team/inside", "team/deep/../inside"] {
        let ended = run_to(&fixture, &text, output).expect(2);
        ended.says(&["dataset.sidecarPrefix", "lie inside one another"]);
    }
    assert!(fixture.files("team").is_empty());
    run_to(&fixture, &text, "here/team").expect(0);
    assert_eq!(fixture.shards("team").len(), 12);
}

/// They went to a folder called `a%20b`, and to local folders called `gs:` and the like.
#[test]
fn an_output_is_written_where_an_input_of_that_name_is_read() {
    let fixture = Fixture::new();
    let (root, text) = (fixture.root(), fixture.join());
    run_to(&fixture, &text, &format!("file://{root}/a%20b/")).expect(0);
    assert_eq!(fixture.shards("a b").len(), 12);
    assert!(!fixture.path("a%20b").exists());
    let spaced = text.replace(
        &format!("prefix: {root}/out/"),
        &format!("prefix: 'file://{root}/c%20d/'"),
    );
    assert_ne!(spaced, text);
    fixture.run(&spaced).expect(0);
    assert_eq!(fixture.shards("c d").len(), 12);
    for command in ["verify", "audit"] {
        fixture.worker(command, &spaced).run().expect(0);
    }

    let before = fixture.files("");
    for (output, words) in [
        ("gs://bucket/out/", "`gs://` is not supported"),
        ("https://host/bucket/out/", "give the server as `endpoint`"),
        ("S3://bucket/out/", "write it as `s3://bucket/out/`"),
        ("S3:/bucket/out/", "write it as `s3://bucket/out/`"),
        ("hdfs:/bucket/out/", "`hdfs://` is not supported"),
        ("file://out/", "three slashes"),
        ("file:///a%2/", "`%25`"),
        ("", "it is empty"),
    ] {
        let ended = run_to(&fixture, &text, output).expect(2);
        ended.says(&["--output-prefix: ", words]);
        for command in ["verify", "audit"] {
            let worker = fixture.worker(command, &text);
            let worker = worker.argument("--output-prefix").argument(output);
            worker.run().expect(2).says(&[words]);
        }
    }
    let chunk = "chunk --run 20250601-101500-k3f7qa --epoch 1 --batch 0 --attempt 1 --index 0";
    let chunk = Worker::new(&[])
        .arguments(chunk)
        .in_folder(&fixture.path(""));
    let chunk = chunk
        .argument("--output-prefix")
        .argument("gs://bucket/out/");
    chunk.run().expect(2).says(&["`gs://` is not supported"]);
    let mut after = fixture.files("");
    after.retain(|name, _| name != "job.yaml");
    assert!(
        before
            .keys()
            .filter(|name| *name != "job.yaml")
            .eq(after.keys())
    );
}

/// The lock above was looked for along the text, not along the folders.
#[test]
fn a_lock_of_the_real_parent_counts() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("held/deep")).expect("a folder");
    symlink("held/deep", fixture.path("link")).expect("a link");
    hold(&fixture.path("held"));
    for output in ["link/out", "link", "held/out", "./held/../link/out"] {
        let ended = run_to(&fixture, &fixture.join(), output).expect(4);
        ended.says(&["which is being written by", "another-machine"]);
    }
    let worker = fixture.worker("run", &fixture.join());
    let inside = worker.in_folder(&fixture.path("held/deep"));
    let ended = inside.argument("--output-prefix").argument("out").run();
    ended.expect(4).says(&["another-machine"]);
    let files = fixture.files("held");
    assert!(
        files.keys().eq(["_sidecar/writer.json"]),
        "{:?}",
        files.keys()
    );
}

#[test]
fn a_write_does_not_follow_a_linked_folder_out_of_the_prefix() {
    let fixture = Fixture::new();
    for folder in ["elsewhere", "out"] {
        std::fs::create_dir(fixture.path(folder)).expect("a folder");
    }
    symlink(fixture.path("elsewhere"), fixture.path("out/source_a")).expect("a link");
    symlink(fixture.path("nowhere"), fixture.path("out/source_b")).expect("a link");
    let ended = fixture.run(&fixture.join()).expect(1);
    assert!(
        ended.stdout.contains("4 made, 0 there already, 8 failed"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("a write follows no such link"),
        "{}",
        ended.stdout
    );
    assert!(fixture.files("elsewhere").is_empty());
    assert!(!fixture.path("nowhere").exists());
    // A link that stays inside is a folder like any other.
    for link in ["out/source_a", "out/source_b"] {
        std::fs::remove_file(fixture.path(link)).expect("a link");
    }
    std::fs::create_dir(fixture.path("out/real")).expect("a folder");
    symlink("real", fixture.path("out/source_b")).expect("a link");
    fixture.run(&fixture.join()).expect(0);
    assert_eq!(fixture.files("out/real").len(), 4);

    std::fs::remove_dir_all(fixture.path("out/_sidecar")).expect("remove");
    symlink(fixture.path("elsewhere"), fixture.path("out/_sidecar")).expect("a link");
    let ended = fixture.run(&fixture.join()).expect(2);
    ended.says(&["a write follows no such link"]);
    assert!(fixture.files("elsewhere").is_empty());
}

#[test]
fn a_stray_first_file_beside_the_siblings_does_not_decide() {
    let fixture = Fixture::of(Shape::default());
    let stray = fixture.path("scores/a_stray.parquet");
    write_table(&stray, &[("other", texts([Some("x")].into_iter()))], 1).expect("write");
    fixture.run(&fixture.full()).expect(0);
    assert_eq!(fixture.shards("out").len(), 12);
    // A sibling of a main shard that lacks the column costs that shard.
    let first = fixture.path("scores").join(path(0));
    std::fs::copy(&stray, &first).expect("copy");
    let worker = fixture.worker("run", &fixture.full());
    let other = worker
        .argument("--output-prefix")
        .argument(&format!("{}/other", fixture.root()));
    let ended = other.run().expect(1);
    assert!(
        ended.stdout.contains("11 made, 0 there already, 1 failed"),
        "{}",
        ended.stdout
    );
    // If all lack it, it is the manifest that is wrong.
    let wrong = fixture
        .full()
        .replace("sourceKeyColumn: image_key", "sourceKeyColumn: image_kee");
    let wrong = wrong.replace(
        "targetKeyColumn: image_key",
        "targetKeyColumn: image_key\n        sourceKeyColumn: image_kee",
    );
    assert_ne!(wrong, fixture.full());
    fixture
        .run(&wrong)
        .expect(2)
        .says(&["no column \"image_kee\""]);
}
