//! Where a run writes, and what it says of it.

use harness::dataset::path;

use crate::fixture::Fixture;

fn without_output(text: &str) -> String {
    let (head, _) = text.split_once("  output:").expect("an output");
    head.to_owned()
}

#[test]
fn a_dry_run_shows_everything_and_writes_nothing() {
    let fixture = Fixture::new();
    let mut before = fixture.files("");
    let ended = fixture
        .worker("run", &fixture.full())
        .argument("--dry-run")
        .run()
        .expect(0);
    let root = fixture.root();
    for line in [
        format!("declared output   {root}/out/"),
        format!("effective output  {root}/out/ (spec.output.prefix)"),
        "shards            12 in main".to_owned(),
        "to do             12 to make, 0 to make again".to_owned(),
        format!("{root}/scores/"),
        format!("{root}/index/"),
        format!("{root}/captions/"),
        "nothing was written".to_owned(),
        "score_aes:".to_owned(),
    ] {
        assert!(
            ended.stdout.contains(&line),
            "{line:?} is not in:\n{}",
            ended.stdout
        );
    }
    let mut after = fixture.files("");
    before.remove("job.yaml");
    after.remove("job.yaml");
    assert!(before == after);

    let worker = fixture.worker("run", &fixture.full()).argument("--dry-run");
    let ended = worker
        .arguments(&format!("--output-prefix {root}/elsewhere"))
        .run()
        .expect(0);
    let effective = format!("effective output  {root}/elsewhere/ (--output-prefix)");
    assert!(ended.stdout.contains(&effective), "{}", ended.stdout);
    let worker = fixture.worker("run", &without_output(&fixture.full()));
    let ended = worker.argument("--dry-run").run().expect(0);
    assert!(
        ended.stdout.contains("declared output   (none)"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("/main_run_"), "{}", ended.stdout);
    assert!(!fixture.path("out").exists());
}

#[test]
fn a_dry_run_counts_what_is_left() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    std::fs::remove_file(fixture.path("out").join(path(2))).expect("remove");
    let before = fixture.files("out");
    let ended = fixture
        .worker("run", &fixture.full())
        .argument("--dry-run")
        .run()
        .expect(0);
    assert!(
        ended
            .stdout
            .contains("1 to make, 0 to make again, 11 in place, 0 in place but"),
        "{}",
        ended.stdout
    );
    let other = fixture.full().replace("PreferSidecar", "FillMissing");
    let ended = fixture
        .worker("run", &other)
        .argument("--dry-run")
        .run()
        .expect(2);
    ended.says(&["was made by another pipeline"]);
    assert!(before == fixture.files("out"));
}

/// A dry run that ends with 0 must not be followed by a run that makes nothing.
#[test]
fn a_dry_run_refuses_what_a_run_would_refuse() {
    let fixture = Fixture::new();
    let root = fixture.root();
    let (full, main) = (fixture.full(), format!("mainPrefix: {root}/main/"));
    assert!(full.contains(&main));
    let scaffold = full
        .split("    - joinFromParquet")
        .next()
        .unwrap_or_default();
    let scaffold = format!("{scaffold}  output: {{prefix: {root}/out/}}\n");
    let no_key = scaffold.replace("keyColumn: s3_path", "keyColumn: path");
    for (text, words) in [
        (
            full.replace(&main, &format!("mainPrefix: {root}/mian/")),
            "mian/ holds no shard",
        ),
        (
            full.replace(&main, "mainPrefix: s3:/bucket/main/"),
            "a slash is missing: write it as `s3://bucket/main/`",
        ),
    ] {
        let worker = fixture.worker("run", &text).argument("--dry-run");
        worker.run().expect(2).says(&[words]);
    }
    let worker = fixture.worker("run", &no_key).argument("--dry-run");
    let words = [
        "can't be made: ",
        "no key column \"path\"",
        "a run makes none",
    ];
    worker.run().expect(1).says(&words);
    assert!(!fixture.path("out").exists());

    // Somebody else's shards are in the output folder.
    let foreign = fixture.path("out").join("elsewhere.parquet");
    std::fs::create_dir_all(fixture.path("out")).expect("a folder");
    std::fs::copy(fixture.path("main").join(path(0)), &foreign).expect("a copy");
    for argument in ["--dry-run", "--log-format=json"] {
        let worker = fixture.worker("run", &full).argument(argument);
        worker.run().expect(2).says(&["elsewhere.parquet"]);
    }
}

/// `<prefix>_run_YYYYMMDD_HHMMSS`, beside the sidecar prefix or else beside main.
fn assert_timestamped(name: &str, beside: &str) {
    let stamp = name
        .strip_prefix(&format!("{beside}_run_"))
        .unwrap_or_else(|| panic!("{name} beside {beside}"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (day, second) = stamp.split_once('_').expect("a day and a time");
    assert!(
        day.len() == 8 && second.len() == 6 && digits(day) && digits(second),
        "{name}"
    );
}

/// Beside a whole bucket there are only other buckets, and `.` doesn't tell its own name.
#[test]
fn where_no_sibling_has_a_place_an_output_has_to_be_named() {
    let fixture = Fixture::new();
    let main = format!("mainPrefix: {}/main/", fixture.root());
    for whole in ["s3://bucket", "/", "."] {
        let text = without_output(&fixture.join());
        let text = text.replace(&main, &format!("mainPrefix: {whole}"));
        assert!(text.contains(&format!("mainPrefix: {whole}\n")), "{text}");
        let words = ["set spec.output.prefix", whole];
        fixture.worker("run", &text).run().expect(2).says(&words);
    }
}

#[test]
fn without_a_named_output_a_new_folder_is_made_and_pointed_out() {
    for (sidecar_prefix, beside) in [(None, "main"), (Some("team_sidecar"), "team_sidecar")] {
        let fixture = Fixture::new();
        let mut text = without_output(&fixture.join());
        if let Some(prefix) = sidecar_prefix {
            let named = format!(
                "    sidecarPrefix: {}/{prefix}/\n    keyColumn:",
                fixture.root()
            );
            text = text.replace("    keyColumn:", &named);
        }
        let (ended, report) = fixture.report(fixture.worker("run", &text), 0);
        let output = report["output"]
            .as_str()
            .expect("a prefix")
            .trim_end_matches('/');
        let (_, name) = output.rsplit_once('/').expect("a path");
        assert_timestamped(name, beside);
        assert_eq!(report["output_is_timestamped"], true);
        assert_eq!(fixture.shards(name).len(), 12);
        assert!(fixture.path(name).join("_SUCCESS").exists());
        assert!(
            !fixture.path("team_sidecar").exists(),
            "the team's sidecar is never written"
        );
        // On a line of its own, with how to go on from there.
        assert!(
            ended
                .stderr
                .lines()
                .any(|line| line.trim() == format!("{output}/")),
            "{}",
            ended.stderr
        );
        ended.says(&["no output prefix was named", "--output-prefix"]);

        for command in ["verify", "audit"] {
            fixture
                .worker(command, &text)
                .run()
                .expect(2)
                .says(&["which output?", "--output-prefix"]);
            let named = fixture
                .worker(command, &text)
                .argument("--output-prefix")
                .argument(output);
            named.run().expect(0);
        }
        let worker = fixture
            .worker("run", &text)
            .argument("--output-prefix")
            .argument(output);
        let ended = worker.run().expect(0);
        assert!(
            ended.stdout.contains("0 made, 12 there already"),
            "{}",
            ended.stdout
        );
    }
}

#[test]
fn the_command_line_wins_over_the_manifest() {
    let fixture = Fixture::new();
    let output = format!("{}/named", fixture.root());
    let worker = fixture
        .worker("run", &fixture.join())
        .argument("--output-prefix")
        .argument(&output);
    worker.run().expect(0);
    assert_eq!(fixture.shards("named").len(), 12);
    assert!(!fixture.path("out").exists());
}

#[test]
fn shards_of_another_pipeline_are_never_touched() {
    let fixture = Fixture::new();
    fixture.run(&fixture.join()).expect(0);
    let before = fixture.shards("out");
    for flags in ["", "--no-skip-existing"] {
        let worker = fixture.worker("run", &fixture.full()).arguments(flags);
        worker
            .run()
            .expect(2)
            .says(&["another pipeline", "digest", "--output-prefix"]);
        assert!(before == fixture.shards("out"));
    }
    // Nor are files that are not ours.
    std::fs::remove_dir_all(fixture.path("out")).expect("remove");
    let stranger = fixture.path("out").join(path(3));
    std::fs::create_dir_all(stranger.parent().expect("a folder")).expect("a folder");
    std::fs::copy(fixture.path("main").join(path(3)), &stranger).expect("copy");
    let before = fixture.shards("out");
    fixture
        .run(&fixture.join())
        .expect(2)
        .says(&["not a sidecar shard of this tool", "--output-prefix"]);
    assert!(before == fixture.shards("out"));
}

/// No path in common, with its records and without.
#[test]
fn nothing_is_added_beside_shards_of_another_pipeline() {
    let fixture = Fixture::new();
    fixture.run(&fixture.join()).expect(0);
    let moved = fixture.join().replace("/main/", "/elsewhere/");
    std::fs::create_dir_all(fixture.path("elsewhere/of_its_own")).expect("a folder");
    let shard = fixture
        .shards("main")
        .into_values()
        .next()
        .expect("a shard");
    std::fs::write(fixture.path("elsewhere/of_its_own/0.parquet"), shard).expect("a shard");
    let before = fixture.files("out");
    let refused = |before: &std::collections::BTreeMap<String, Vec<u8>>| {
        let ended = fixture.run(&moved).expect(2);
        ended.says(&["another pipeline", "--output-prefix"]);
        let mut after = fixture.files("out");
        after.retain(|name, _| !name.ends_with("writer.json"));
        let mut before = before.clone();
        before.retain(|name, _| !name.ends_with("writer.json"));
        assert_eq!(after, before);
    };
    refused(&before);
    std::fs::remove_dir_all(fixture.path("out/_sidecar")).expect("records");
    refused(&fixture.files("out"));
}
