//! Locations: folders, links, prefixes, locks and the stores behind them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::dataset::{Shape, path, texts, write_table};

use harness::scripted_s3::{Answer, Request, ScriptedS3};
use rustix::process::Signal;

use crate::fixture::Fixture;
use crate::foreign_lock::{self, from_now};
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
    foreign_lock::lay(folder, &from_now(-1), &from_now(3600), 7);
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
    // What is behind a link that leads nowhere can't be told from nothing.
    let ended = fixture.run(&fixture.join()).expect(2);
    ended.says(&["out/source_b", "leads nowhere"]);
    std::fs::remove_file(fixture.path("out/source_b")).expect("a link");
    let ended = fixture.run(&fixture.join()).expect(1);
    assert!(
        ended.stdout.contains("8 made, 0 there already, 4 failed"),
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
    std::fs::remove_file(fixture.path("out/source_a")).expect("a link");
    std::fs::create_dir(fixture.path("out/real")).expect("a folder");
    symlink("real", fixture.path("out/source_a")).expect("a link");
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

/// The lock of a refused run was left among another pipeline's shards.
#[test]
fn a_refused_run_leaves_nothing_in_a_foreign_folder() {
    let fixture = Fixture::new();
    let stranger = fixture.path("out").join(path(3));
    std::fs::create_dir_all(stranger.parent().expect("a folder")).expect("a folder");
    std::fs::copy(fixture.path("main").join(path(3)), &stranger).expect("copy");
    let before = fixture.files("out");
    let ended = fixture.run(&fixture.join()).expect(2);
    ended.says(&["not a sidecar shard of this tool"]);
    assert!(before == fixture.files("out"));
    assert!(!fixture.path("out/_sidecar").exists());
    // What was there before a run of ours stays, too.
    hold(&fixture.path("out"));
    let lock = fixture.path("out/_sidecar/writer.json");
    let released = std::fs::read_to_string(&lock).expect("a lock");
    std::fs::write(&lock, released.replace("\"held\"", "\"released\"")).expect("write");
    fixture.run(&fixture.join()).expect(2);
    assert!(lock.exists());
}

/// A run of hours ended without its report.
#[test]
fn a_report_that_can_not_be_written_is_told_before_the_work() {
    let fixture = Fixture::new();
    for command in ["run", "verify", "audit"] {
        let worker = fixture.worker(command, &fixture.join());
        let report = fixture.path("no/such/report.json").display().to_string();
        let ended = worker.argument("--report").argument(&report).run();
        ended.expect(2).says(&["--report", "no/such/report.json"]);
    }
    assert!(!fixture.path("out").exists());
    let log = fixture.path("no/such/log").display().to_string();
    let chunk = "chunk --run 20250601-101500-k3f7qa --epoch 1 --batch 0 --attempt 1 --index 0";
    let chunk = Worker::new(&[])
        .arguments(chunk)
        .argument("--output-prefix");
    let chunk = chunk
        .argument(&fixture.root())
        .argument("--termination-log");
    chunk
        .argument(&log)
        .run()
        .expect(2)
        .says(&["--termination-log", "no/such/log"]);

    // A run that does not begin leaves no file, and none of an earlier report's bytes is lost.
    let report = fixture.path("report.json");
    let run = |text: &str| {
        let worker = fixture.worker("run", text).argument("--report");
        worker.argument(&report.display().to_string()).run()
    };
    let wrong = fixture.join().replace("/main/", "/mian/");
    run(&wrong).expect(2);
    assert!(!report.exists());
    std::fs::write(&report, "an earlier report, longer than nothing").expect("write");
    run(&wrong).expect(2);
    assert_eq!(std::fs::read(&report).expect("read").len(), 38);
    run(&fixture.join()).expect(0);
    let text = std::fs::read(&report).expect("read");
    let value: serde_json::Value = serde_json::from_slice(&text).expect("JSON alone");
    assert_eq!(value["shards_done"], 12);
}

/// 14 shards were there, and the report said 0.
#[test]
fn what_was_published_before_the_disk_was_full_is_counted() {
    let probe = std::process::Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var("SIDECARJOB_STRICT").as_deref() != Ok("1"),
            "no file system of a few pages can be mounted here"
        );
        eprintln!("SKIPPED: no file system of a few pages can be mounted here");
        return;
    }
    let fixture = Fixture::of(Shape {
        shards: 120,
        ..Shape::default()
    });
    std::fs::create_dir(fixture.path("out")).expect("a folder");
    let text = fixture.join();
    let job = fixture.path("job.yaml");
    std::fs::write(&job, text).expect("write");
    let script = "mount -t tmpfs -o size=320k none \"$0/out\" && \"$1\" run \"$0/job.yaml\" --report \"$0/report.json\"; \
                  code=$?; find \"$0/out\" -name '*.parquet' | wc -l >\"$0/count\"; exit $code";
    let output = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", script])
        .arg(fixture.root())
        .arg(env!("CARGO_BIN_EXE_shard-worker"))
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("a quota, is full"), "{said}");
    let report = std::fs::read(fixture.path("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let count = std::fs::read_to_string(fixture.path("count")).expect("a count");
    let count: u64 = count.trim().parse().expect("a number");
    assert!(count > 0 && count < 120, "{count}");
    assert_eq!(report["shards_done"], count);
    assert!(report["error"].as_str().expect("why").contains("is full"));
}

/// A server with the dataset's main and index.
fn with_dataset(fixture: &Fixture, server: &ScriptedS3) {
    for folder in ["main", "index"] {
        for (name, bytes) in fixture.files(folder) {
            server.put(&format!("{folder}/{name}"), bytes);
        }
    }
}

fn on_server(fixture: &Fixture, server: &ScriptedS3) -> Worker {
    let root = format!("{}/", fixture.root());
    let text = fixture.join().replace(&root, "s3://bucket/");
    fixture
        .worker("run", &text)
        .environment(&server.environment())
}

/// The bucket's name was put right behind the path: `/storage/v1/s3bucket/main/...`.
#[test]
fn an_endpoint_with_a_path_works_with_a_slash_at_its_end_and_without() {
    for end in ["", "/"] {
        for variable in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
            let fixture = Fixture::new();
            let server = ScriptedS3::start_with("/storage/v1/s3", true, |_| None);
            with_dataset(&fixture, &server);
            let endpoint = format!("{}/storage/v1/s3{end}", server.endpoint());
            let worker = on_server(&fixture, &server);
            worker.environment(&[(variable, endpoint)]).run().expect(0);
            assert!(server.keys().contains(&"out/_SUCCESS".to_owned()));
            let elsewhere = |seen: &&String| !seen.contains(" /storage/v1/s3/bucket");
            assert_eq!(server.seen().iter().find(elsewhere), None);
        }
    }
}

/// A page of a portal, or of another server, is neither an empty listing nor a mistake in the
/// manifest.
#[test]
fn answers_that_can_not_be_parsed_are_the_stores_failure() {
    let portal = "<!DOCTYPE html><html><body>please log in</body></html>";
    for (status, body) in [
        (200, portal),
        (200, ""),
        (400, portal),
        (405, portal),
        (200, "{}"),
    ] {
        let fixture = Fixture::new();
        let server = ScriptedS3::start(move |_| Some(Answer::new(status, body)));
        let ended = on_server(&fixture, &server).run().expect(5);
        ended.says(&["check that the endpoint is an S3 server's"]);
    }
    // A portal that begins under way: no write counts that has no ETag.
    let fixture = Fixture::new();
    let server = ScriptedS3::start(move |request: &Request| {
        let is_shard = request.method == "PUT" && request.target.contains("/out/source_");
        is_shard.then(|| Answer::new(200, portal))
    });
    with_dataset(&fixture, &server);
    let ended = on_server(&fixture, &server).run().expect(1);
    assert!(
        ended.stdout.contains("0 made, 0 there already, 12 failed"),
        "{}",
        ended.stdout
    );
    assert!(!server.keys().contains(&"out/_SUCCESS".to_owned()));
}

/// Two writers of one prefix would both have gone on.
#[test]
fn a_server_that_ignores_conditions_is_refused_at_the_claim() {
    let fixture = Fixture::new();
    let server = ScriptedS3::start_with("", false, |_| None);
    with_dataset(&fixture, &server);
    let before = server.keys();
    let ended = on_server(&fixture, &server).run().expect(2);
    ended.says(&[
        "ignores the condition If-None-Match",
        "keep two writers apart",
    ]);
    assert_eq!(server.keys(), before);
    // One that knows the one condition and not the other.
    let fixture = Fixture::new();
    let server = ScriptedS3::start(|request: &Request| {
        let has_tag = request.headers.contains_key("if-match");
        let mut answer = Answer::new(200, "");
        answer.headers.push(("ETag", "\"00\"".to_owned()));
        (request.method == "PUT" && has_tag).then_some(answer)
    });
    with_dataset(&fixture, &server);
    let ended = on_server(&fixture, &server).run().expect(2);
    ended.says(&["ignores the condition If-Match"]);
    // One that keeps both is asked twice.
    let fixture = Fixture::new();
    let server = ScriptedS3::start(|_| None);
    with_dataset(&fixture, &server);
    on_server(&fixture, &server).run().expect(0);
    let seen = server.seen();
    let puts = seen
        .iter()
        .filter(|seen| seen.starts_with("PUT") && seen.contains("writer.json"));
    // Claim, two that are refused, hold, release.
    assert_eq!(puts.count(), 5);
}

/// It warns, as the operator does, and the run goes on; others' uploads stay.
#[test]
fn housekeeping_that_is_denied_is_no_failure() {
    let fixture = Fixture::new();
    let server = ScriptedS3::start(|request: &Request| {
        let is_listing = request.parameter("uploads").is_some();
        is_listing.then(|| Answer::error(403, "AccessDenied"))
    });
    with_dataset(&fixture, &server);
    let ended = on_server(&fixture, &server).run().expect(0);
    ended.says(&[
        "what killed writers left can't be removed",
        "docs/permissions.md",
    ]);

    let fixture = Fixture::new();
    let upload = |key: &str, id: &str| {
        format!("<Upload><Key>out/{key}</Key><UploadId>{id}</UploadId></Upload>")
    };
    let listed = [
        upload(&path(4), "ours-1"),
        upload("_sidecar/plan", "ours-2"),
        upload("videos/film.mp4", "theirs-1"),
        upload("_hidden/other/_sidecar/x", "theirs-2"),
        upload("a//b", "theirs-3"),
    ];
    let listed = format!(
        "<ListMultipartUploadsResult>{}</ListMultipartUploadsResult>",
        listed.concat()
    );
    let server = ScriptedS3::start(move |request: &Request| {
        let is_listing = request.parameter("uploads").is_some();
        is_listing.then(|| Answer::new(200, listed.clone()))
    });
    with_dataset(&fixture, &server);
    on_server(&fixture, &server).run().expect(0);
    let seen = server.seen();
    let aborted: Vec<&str> = seen
        .iter()
        .filter(|seen| seen.starts_with("DELETE"))
        .filter_map(|seen| seen.split_once("uploadId=").map(|(_, id)| id))
        .collect();
    assert_eq!(aborted, ["ours-1", "ours-2"]);
}

/// Temporary files of another run, in a folder that listings pass over, were removed under it.
#[test]
fn only_leftovers_of_this_output_are_swept_on_disk() {
    let fixture = Fixture::new();
    let left = |key: &str| {
        let (folder, name) = key.rsplit_once('/').expect("a folder");
        format!("out/{folder}/.{name}.0123456789abcdef.sidecar-tmp")
    };
    let (ours, theirs) = (left(&path(4)), left("_hidden/out/source_a/0000.parquet"));
    for name in [&ours, &theirs] {
        let file = fixture.path(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, "half").expect("write");
    }
    fixture.run(&fixture.join()).expect(0);
    assert!(!fixture.path(&ours).exists());
    assert!(fixture.path(&theirs).exists());
}

/// What was sent before the lock was lost can't be called back; nothing is sent afterwards.
#[test]
fn no_shard_is_sent_to_s3_once_the_lock_is_lost() {
    let fixture = Fixture::of(Shape {
        shards: 90,
        ..Shape::default()
    });
    let is_held = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&is_held);
    let is_shard = |text: &str| text.starts_with("PUT") && text.contains("/out/source_");
    let server = ScriptedS3::start(move |request: &Request| {
        let is_sent = is_shard(&format!("{} {}", request.method, request.target));
        while is_sent && held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    });
    with_dataset(&fixture, &server);
    let sent = || server.seen().iter().filter(|seen| is_shard(seen)).count();
    let ttl = [("SIDECARJOB_LOCK_TTL_SECONDS", "2".to_owned())];
    let worker = on_server(&fixture, &server).environment(&ttl);
    let mut running = worker.arguments("--threads 2").start();
    // As many as are finished at once: no other is about to be sent when the process stops.
    assert!(running.until(|| sent() >= 16));
    running.signal(Signal::STOP);
    let lock = || {
        let bytes = server.get("out/_sidecar/writer.json").expect("a lock");
        serde_json::from_slice::<serde_json::Value>(&bytes).expect("JSON")
    };
    let format = time::format_description::well_known::Rfc3339;
    let expires =
        time::OffsetDateTime::parse(lock()["expires_at"].as_str().expect("a time"), &format);
    let expires = expires.expect("a time");
    assert!(running.until(|| time::OffsetDateTime::now_utc() > expires));
    let before = sent();
    let mut taken = lock();
    taken["epoch"] = 2.into();
    taken["holder"]["instance"] = "another".into();
    taken["run"] = "20250601-101500-k3f7qa".into();
    server.put("out/_sidecar/writer.json", taken.to_string().into_bytes());
    running.signal(Signal::CONT);
    running.wait().expect(4).says(&["the writer lock of "]);
    assert_eq!(sent(), before);
    is_held.store(false, Ordering::SeqCst);
    let appeared = || {
        let keys = server.keys();
        keys.iter()
            .filter(|key| key.starts_with("out/source_"))
            .count()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while appeared() < before {
        assert!(Instant::now() < deadline, "{} of {before}", appeared());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((appeared(), before), (16, 16));
}
