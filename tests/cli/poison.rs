//! Shards that cannot be read cost themselves, nothing else.

use harness::dataset::path;
use serde_json::Value;

use crate::fixture::Fixture;

/// Breaks five shards in five ways.
fn poison(fixture: &Fixture) -> Vec<String> {
    let main = |shard: usize| fixture.path("main").join(path(shard));
    std::fs::write(main(1), vec![0xA5; 5000]).expect("write");
    let whole = std::fs::read(main(2)).expect("read");
    std::fs::write(main(2), &whole[..whole.len() / 2]).expect("write");
    std::fs::write(main(3), b"").expect("write");
    // A good end, but the pages before it are gone.
    let whole = std::fs::read(main(4)).expect("read");
    let mut torn = whole.clone();
    torn[4..whole.len() / 3].fill(0xFF);
    std::fs::write(main(4), torn).expect("write");
    // A footer that promises more than there is.
    let mut liar = b"PAR1".to_vec();
    liar.extend([0xFF, 0xFF, 0xFF, 0x7F]);
    liar.extend(b"PAR1");
    std::fs::write(main(5), liar).expect("write");
    (1..6).map(path).collect()
}

#[test]
fn poisonous_shards_are_listed_and_the_others_done() {
    let fixture = Fixture::new();
    let poisoned = poison(&fixture);
    let (ended, report) = fixture.report(fixture.worker("run", &fixture.full()), 1);
    let made: Vec<String> = fixture.shards("out").into_keys().collect();
    assert_eq!(made.len(), 7, "{made:?}");
    assert_eq!(
        (&report["shards_done"], &report["shards_failed"]),
        (&7.into(), &5.into())
    );
    let failures = report["failures"].as_array().expect("a list");
    let mut listed: Vec<&str> = failures
        .iter()
        .filter_map(|failure| failure["path"].as_str())
        .collect();
    listed.sort_unstable();
    let mut expected = poisoned.clone();
    expected.sort();
    assert_eq!(listed, expected);
    assert!(
        failures.iter().all(|failure| failure["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains(&fixture.root()))),
        "{failures:#?}"
    );
    let (_, summary) = ended.stdout.split_once("failed shards:").expect("a list");
    for path in &poisoned {
        assert!(summary.contains(path), "{path} is not in {summary}");
        assert!(!made.contains(path));
    }
    assert!(!fixture.path("out/_SUCCESS").exists());
    let files = fixture.files("out");
    let strange: Vec<&String> = files.keys().filter(|name| name.contains("tmp")).collect();
    assert!(strange.is_empty(), "{strange:?}");

    // Verification says why they are missing.
    let (_, verified) = fixture.report(fixture.worker("verify", &fixture.full()), 3);
    let problems = verified["problems"].as_array().expect("a list");
    let missing = problems
        .iter()
        .filter(|problem| problem["kind"] == "missing");
    assert_eq!(missing.count(), 5, "{problems:#?}");
    assert!(
        problems.iter().all(|problem| problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("the run said"))),
        "{problems:#?}"
    );

    // Another run tries them again, and them alone; mended, they are made.
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 1);
    assert_eq!(
        (&report["shards_kept"], &report["shards_failed"]),
        (&7.into(), &5.into())
    );
    let good = Fixture::new();
    for path in &poisoned {
        std::fs::copy(
            good.path("main").join(path),
            fixture.path("main").join(path),
        )
        .expect("copy");
    }
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 0);
    assert_eq!(
        (&report["shards_done"], &report["shards_kept"]),
        (&5.into(), &7.into())
    );
    assert!(fixture.path("out/_SUCCESS").exists());
    fixture
        .worker("verify", &fixture.full())
        .arguments("--all --deep")
        .run()
        .expect(0);
}

#[test]
fn a_shard_that_is_poisonous_from_the_first_does_not_end_the_run() {
    // All shards that are looked at in advance are broken.
    let fixture = Fixture::new();
    for shard in 0..11 {
        std::fs::write(fixture.path("main").join(path(shard)), "garbage").expect("write");
    }
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 1);
    assert_eq!(
        (&report["shards_done"], &report["shards_failed"]),
        (&1.into(), &11.into())
    );
    for shard in 11..12 {
        std::fs::write(fixture.path("main").join(path(shard)), "garbage").expect("write");
    }
    let (_, report) = fixture.report(
        fixture
            .worker("run", &fixture.join())
            .argument("--output-prefix")
            .argument(&format!("{}/none", fixture.root())),
        1,
    );
    assert_eq!(
        (&report["shards_done"], &report["shards_failed"]),
        (&0.into(), &12.into())
    );
    assert_eq!(report["failures"].as_array().map(Vec::len), Some(12));
    assert_eq!(report["match_rate"], Value::Null);
}
