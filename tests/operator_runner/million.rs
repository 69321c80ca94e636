//! A plan of a million shards: its memory is bounded.

use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use operator::runner::beside::Beside;
use operator::runner::planner::PlanRequest;
use storage::state::RunId;
use storage::{
    ETag, Error, Leftover, ListPage, ObjectMeta, Payload, Published, PutCondition, RequestCounts,
    Result, StorageConfig, Store, Stores,
};

use crate::controller::DIGEST;
use crate::place::file;

const SHARDS: u64 = 1_000_000;
/// Shards of a page, as S3 has it.
const PAGE: u64 = 1000;
/// The planning process may have this much memory at its peak, in MiB.
const MOST_MIB: u64 = 250;
/// Tells the child process which part it has.
const VARIABLE: &str = "OPERATOR_RUNNER_MILLION";

/// A main prefix that exists only as a listing.
#[derive(Debug)]
struct Endless {
    footer: Vec<u8>,
}

impl Endless {
    fn shard(number: u64, size: u64) -> ObjectMeta {
        ObjectMeta {
            key: format!("agency-{:03}/2025/{number:08}.parquet", number / 10_000),
            size,
            etag: ETag(format!("\"{number:032x}\"").into()),
        }
    }

    fn refuse<T>(&self, key: &str) -> Result<T> {
        Err(Error::NotFound {
            uri: format!("{}{key}", self.uri()),
        })
    }
}

#[async_trait]
impl Store for Endless {
    fn uri(&self) -> &str {
        "s3://nowhere/main/"
    }

    fn list_shards(&self) -> BoxStream<'_, Result<ListPage>> {
        let size = self.footer.len() as u64;
        let page = move |number: u64| {
            let shards = number * PAGE..((number + 1) * PAGE).min(SHARDS);
            Ok(ListPage {
                shards: shards.map(|shard| Self::shard(shard, size)).collect(),
                ..ListPage::default()
            })
        };
        stream::iter(0..SHARDS.div_ceil(PAGE)).map(page).boxed()
    }

    async fn list_bounded(&self, _: &str, _: usize) -> Result<Vec<ObjectMeta>> {
        Ok(Vec::new())
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        self.refuse(key)
    }

    async fn read_bounded(&self, key: &str, _: u64) -> Result<(ObjectMeta, Bytes)> {
        self.refuse(key)
    }

    async fn read_ranges(
        &self,
        _: &str,
        ranges: &[Range<u64>],
        _: Option<&ETag>,
    ) -> Result<Vec<Bytes>> {
        let slice = |range: &Range<u64>| {
            let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            Bytes::copy_from_slice(&self.footer[range])
        };
        Ok(ranges.iter().map(slice).collect())
    }

    async fn put(&self, key: &str, _: Payload, _: PutCondition) -> Result<Published> {
        self.refuse(key)
    }

    async fn delete(&self, key: &str, _: Option<&ETag>) -> Result<()> {
        self.refuse(key)
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>> {
        Ok(Vec::new())
    }

    async fn sweep(&self, _leftovers: &[Leftover]) -> Result<u64> {
        Ok(0)
    }

    fn requests(&self) -> RequestCounts {
        RequestCounts::default()
    }
}

/// Peak memory of this process, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() / 1024
}

/// A process of its own plans, so that its peak is that of nothing else.
#[test]
fn a_million_shards_are_planned_in_bounded_memory() {
    let binary = std::env::current_exe().unwrap();
    let name = "million::plan_a_million_shards";
    let child = Command::new(binary)
        .args(["--exact", name, "--nocapture", "--ignored"])
        .env(VARIABLE, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{told}\n{errors}");
    let line = told
        .lines()
        .find(|line| line.contains("planned 1000000 shards"));
    println!("{}", line.unwrap_or_else(|| panic!("{told}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test above, in a process of its own"]
async fn plan_a_million_shards() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let stores = Stores::new(&StorageConfig::default());
    let output = stores
        .open(&format!("{}/", folder.path().display()))
        .unwrap();
    let main = Arc::new(Endless {
        footer: file(512, None),
    });
    let begun = Instant::now();
    let listed: u64 = main
        .list_shards()
        .try_fold(0, async |sum, page| Ok(sum + page.shards.len() as u64))
        .await
        .unwrap();
    let bare = begun.elapsed();
    assert_eq!(listed, SHARDS);

    let request = PlanRequest {
        run: RunId::generate(),
        digest: DIGEST.to_owned(),
        replaces: Vec::new(),
        skip_existing: true,
        main,
        output,
        beside: Beside::default(),
    };
    let begun = Instant::now();
    let held = |_| async { Ok(()) }.boxed();
    let summary = request.carry_out(&held).await.unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!((summary.chunks, summary.shards), (SHARDS, SHARDS));
    assert_eq!(summary.parts, SHARDS.div_ceil(8192));
    assert_eq!(summary.rows_per_shard, Some(512.0));
    let peak = peak_mib();
    println!(
        "planned {SHARDS} shards in {seconds:.1} s beside {:.1} s of making the listing, peak {peak} MiB",
        bare.as_secs_f64()
    );
    assert!(peak <= MOST_MIB, "peak memory is {peak} MiB");
}
