//! The bytes of a shard depend on its inputs and the manifest, on nothing else.

use harness::dataset::{Shape, mix, texts, write_table};

use crate::fixture::Fixture;

#[test]
fn threads_and_memory_change_no_byte() {
    let shape = Shape {
        shards: 48,
        rows: 25,
        group_rows: 10,
        image_bytes: 20_000,
    };
    let fixture = Fixture::of(shape);
    let mut first = None;
    // Images that pass through are held: the least memory then takes several chunks.
    let text = fixture.full().replace("    imageColumn: image\n", "");
    for (threads, memory) in [("1", "64MiB"), ("4", "64MiB"), ("1", "4GiB"), ("4", "4GiB")] {
        let output = format!("out_{threads}_{memory}");
        let arguments = format!(
            "--threads {threads} --memory {memory} --output-prefix {}/{output}",
            fixture.root()
        );
        let (_, report) = fixture.report(fixture.worker("run", &text).arguments(&arguments), 0);
        assert_eq!(report["shards_done"], 48);
        let passes = report["pass_count"].as_u64();
        assert!(
            passes >= Some(if memory == "64MiB" { 3 } else { 1 }),
            "{memory}: {passes:?}"
        );
        let shards = fixture.shards(&output);
        let first = first.get_or_insert_with(|| shards.clone());
        assert!(*first == shards, "{threads} threads, {memory}");
    }
}

#[test]
fn runs_in_parts_change_no_byte() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let parts = format!("{}/parts/", fixture.root());
    for _ in 0..4 {
        let worker = fixture
            .worker("run", &fixture.full())
            .arguments("--max-shards 3 --output-prefix");
        worker.argument(&parts).run().expect(0);
    }
    assert!(fixture.path("parts/_SUCCESS").exists());
    assert!(fixture.shards("out") == fixture.shards("parts"));
}

/// Many shards for few threads and little memory: loading goes on while others are finished,
/// and neither waits for the other.
#[test]
fn many_shards_end_whatever_the_threads_and_the_memory() {
    let fixture = Fixture::of(Shape {
        shards: 200,
        rows: 400,
        group_rows: 400,
        image_bytes: 10,
    });
    let join = fixture.join();
    let step = join.find("    - joinFromParquet").expect("the step");
    let end = join[step..].find("OverwriteAll\n").expect("its end") + "OverwriteAll\n".len();
    let scaffold = join[..step].to_owned() + &join[step + end..];
    for (name, text) in [("joined", &join), ("plain", &scaffold)] {
        for threads in ["1", "2"] {
            let output = format!("{}/{name}_{threads}/", fixture.root());
            let worker = fixture
                .worker("run", text)
                .arguments("--memory 64MiB --threads")
                .argument(threads)
                .argument("--output-prefix")
                .argument(&output);
            worker.run().expect(0);
        }
        let (one, two) = (format!("{name}_1"), format!("{name}_2"));
        assert_eq!(fixture.shards(&one).len(), 200);
        assert_eq!(fixture.shards(&one), fixture.shards(&two));
    }
}

/// Shards that are larger than those that were looked at take their turns: what is loaded at
/// once follows `--memory`, not the number of shards in flight.
#[cfg(target_os = "linux")]
#[test]
fn larger_shards_than_the_first_wait_for_room() {
    const LARGE: usize = 8 << 20;
    let fixture = Fixture::empty();
    let main = |shard: usize| fixture.path(&format!("main/{shard:04}.parquet"));
    let write = |shard: usize, bytes: usize| {
        let text: String = (0..bytes / 16)
            .map(|word| format!("{:016x}", mix(shard, word, 1)))
            .collect();
        let columns = [
            ("s3_path", texts([Some(format!("key {shard}"))].into_iter())),
            ("note", texts([Some(text)].into_iter())),
        ];
        write_table(&main(shard), &columns, 1).expect("write");
    };
    (0..12).for_each(|shard| write(shard, 16));
    write(12, LARGE);
    for shard in 13..60 {
        std::fs::hard_link(main(12), main(shard)).expect("a link");
    }
    let text = format!(
        "apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {{name: uneven}}
spec:
  dataset: {{mainPrefix: {root}/main/, keyColumn: s3_path}}
  pipeline: [{{extractScaffold: {{}}}}]
  output: {{prefix: {root}/out/}}
",
        root = fixture.root()
    );
    let running = fixture
        .worker("run", &text)
        .arguments("--memory 128MiB --threads 2")
        .start();
    let (ended, highest) = running.wait_measured();
    ended.expect(0);
    assert!(highest < 200 << 10, "{highest} KiB at the peak");
    assert_eq!(fixture.shards("out").len(), 60);
}
