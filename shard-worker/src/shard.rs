//! One shard: its files, its plan, its keys, and in the end its sidecar.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::try_join_all;
use storage::ObjectMeta;
use storage::state::side_inputs::versions;

use crate::column_plan::{ColumnPlan, ShardFiles, Value};
use crate::error::ShardError;
use crate::job::Job;
use crate::keys::{self, KeyColumn, KeyKind, show};
use crate::parquet_file::ParquetFile;
use crate::splice;

/// Bytes that a row's key takes, however short: where it ends, and that there is none.
const KEY_OVERHEAD: u64 = 8;

/// A shard whose footers are read, and whose plan is made.
#[derive(Debug)]
pub struct OpenShard {
    files: ShardFiles,
    plan: ColumnPlan,
    /// Leaves that are needed of each file.
    wanted: BTreeMap<usize, BTreeSet<usize>>,
}

/// A shard whose bytes are fetched, and whose plan is made.
#[derive(Debug)]
pub struct FetchedShard {
    /// Its files.
    pub files: ShardFiles,
    /// Its columns.
    pub plan: ColumnPlan,
}

/// A shard whose siblings are known to be aligned and whose keys are decoded.
#[derive(Debug)]
pub struct LoadedShard {
    /// Its files.
    pub files: ShardFiles,
    /// Its columns.
    pub plan: ColumnPlan,
    /// Main's key columns that lookups need, by name.
    pub keys: BTreeMap<String, Arc<KeyColumn>>,
}

impl LoadedShard {
    /// Bytes that the shard holds until it is published.
    pub fn memory(&self) -> u64 {
        let keys: usize = self.keys.values().map(|keys| keys.memory()).sum();
        files_memory(&self.files) + keys as u64
    }
}

impl FetchedShard {
    /// Bytes that the shard holds, and will hold once its keys are decoded.
    pub fn memory(&self, job: &Job) -> u64 {
        files_memory(&self.files) + keys_memory(&self.files, job)
    }
}

/// Bytes of main's keys, decoded.
fn keys_memory(files: &ShardFiles, job: &Job) -> u64 {
    let keys = job
        .lookups
        .iter()
        .filter_map(|lookup| keys::kind_of(&files.main, lookup.target_key()).ok())
        .flat_map(|(leaf, _)| {
            let groups = files.main.metadata.row_groups().iter();
            groups.map(move |group| group.column(leaf).uncompressed_size())
        })
        .fold(0, i64::saturating_add);
    keys.max(0) as u64
}

fn files_memory(files: &ShardFiles) -> u64 {
    let files = std::iter::once(&files.main).chain(files.siblings.iter().flatten());
    files
        .map(|file| (file.bytes.held() + file.metadata.memory_size()) as u64)
        .sum()
}

/// Opens footers, plans, and fetches what the plan needs: one request for the footer (and,
/// where it lies close, the columns before it), then the other ranges.
pub async fn fetch(job: &Job, meta: ObjectMeta) -> Result<FetchedShard, ShardError> {
    open(job, meta).await?.fetch(job).await
}

/// Opens the siblings of a main shard, in the order of the job's.
pub async fn open_siblings(job: &Job, key: &str) -> Result<Vec<Option<ParquetFile>>, ShardError> {
    try_join_all(
        job.siblings
            .iter()
            .zip(&job.hints[1..])
            .map(|(sibling, hint)| async move {
                match sibling.store.head(key).await {
                    Ok(meta) => ParquetFile::open(&*sibling.store, meta, hint)
                        .await
                        .map(Some),
                    Err(error) if error.is_not_found() && !sibling.required => Ok(None),
                    Err(error) if error.is_not_found() => Err(ShardError::schema(
                        &format!("{}{key}", sibling.store.uri()),
                        "no such sibling shard; set required: false to let shards pass without one",
                    )),
                    Err(error) => Err(error.into()),
                }
            }),
    )
    .await
}

/// Opens footers and plans.
pub async fn open(job: &Job, meta: ObjectMeta) -> Result<OpenShard, ShardError> {
    let key = meta.key.clone();
    let main = ParquetFile::open(&*job.main, meta, &job.hints[0]);
    let siblings = open_siblings(job, &key);
    let (main, siblings) = futures::future::join(main, siblings).await;
    let files = ShardFiles {
        main: main?,
        siblings: siblings?,
    };
    let plan = plan(job, &files)?;
    let wanted = wanted_leaves(job, &files, &plan)?;
    Ok(OpenShard {
        files,
        plan,
        wanted,
    })
}

impl OpenShard {
    /// Versions of what the shard is made from beside main.
    pub fn input_versions(&self, job: &Job) -> Option<String> {
        let siblings = self.files.siblings.iter();
        versions(
            &job.keyed,
            siblings.map(|file| file.as_ref().map(|file| &file.meta)),
        )
    }

    /// Refuses a shard whose keys alone take more than `memory` bytes: a few bytes in a file can stand
    /// for billions of rows.
    ///
    /// # Errors
    /// If they do.
    pub fn check_rows(&self, job: &Job, memory: u64) -> Result<(), ShardError> {
        let rows = self.files.main.num_rows() as u64;
        let needs_keys = job.has_lookups() || !self.plan.alignments.is_empty();
        let bytes = rows * KEY_OVERHEAD;
        if needs_keys && bytes > memory {
            let reason = format!(
                "the keys of its {rows} rows take {bytes} bytes or more, --memory is {memory}; raise --memory"
            );
            return Err(ShardError::malformed(&self.files.main.uri, reason));
        }
        Ok(())
    }

    /// Where its siblings are, for messages.
    pub fn sibling_uris(&self) -> String {
        let siblings = self.files.siblings.iter().flatten();
        let uris: Vec<&str> = siblings.map(|file| file.uri.as_str()).collect();
        uris.join(", ")
    }

    /// Bytes that the shard will hold once it is loaded: what was read already, the columns that
    /// are needed, and decoded keys.
    pub fn memory(&self, job: &Job) -> u64 {
        let columns: u64 = self
            .wanted
            .iter()
            .filter_map(|(&file, leaves)| Some(self.files.get(file)?.size_of(leaves)))
            .sum();
        files_memory(&self.files) + keys_memory(&self.files, job) + columns
    }

    /// Fetches what the plan needs.
    pub async fn fetch(self, job: &Job) -> Result<FetchedShard, ShardError> {
        let Self {
            mut files,
            plan,
            wanted,
        } = self;
        for (number, leaves) in wanted {
            let (file, store, hint) = match number {
                0 => (&mut files.main, &job.main, &job.hints[0]),
                sibling => match files.siblings[sibling - 1].as_mut() {
                    Some(file) => (file, &job.siblings[sibling - 1].store, &job.hints[sibling]),
                    None => continue,
                },
            };
            let leaves: Vec<usize> = leaves.into_iter().collect();
            file.fetch(&**store, &leaves, hint).await?;
        }
        Ok(FetchedShard { files, plan })
    }
}

/// The columns of the shard's sidecar, from footers alone.
pub fn plan(job: &Job, files: &ShardFiles) -> Result<ColumnPlan, ShardError> {
    let mut plan = ColumnPlan::start(&files.main, &job.key, job.image.as_deref(), &job.declared)?;
    for op in &job.ops {
        op.plan(&mut plan, files)?;
    }
    plan.finish(files)
}

/// The leaves that are needed of each file.
fn wanted_leaves(
    job: &Job,
    files: &ShardFiles,
    plan: &ColumnPlan,
) -> Result<BTreeMap<usize, BTreeSet<usize>>, ShardError> {
    let mut wanted: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    fn add(value: &Value, files: &ShardFiles, wanted: &mut BTreeMap<usize, BTreeSet<usize>>) {
        match value {
            Value::File { file, root } => {
                if let Some(found) = files.get(*file) {
                    wanted
                        .entry(*file)
                        .or_default()
                        .extend(found.leaves_of(*root));
                }
            }
            Value::FirstPresent { candidates, .. } => candidates
                .iter()
                .for_each(|candidate| add(candidate, files, wanted)),
            Value::Empty | Value::Lookup { .. } | Value::Computed { .. } => {}
        }
    }
    for column in &plan.columns {
        add(&column.value, files, &mut wanted);
    }
    for lookup in &job.lookups {
        let (leaf, kind) = keys::kind_of(&files.main, lookup.target_key())?;
        check_kind(
            &files.main,
            lookup.target_key(),
            kind,
            lookup.key_kind(),
            lookup.uri(),
        )?;
        wanted.entry(0).or_default().insert(leaf);
    }
    for alignment in &plan.alignments {
        let (leaf, kind) = keys::kind_of(&files.main, &alignment.target_key)?;
        wanted.entry(0).or_default().insert(leaf);
        if let Some(sibling) = files.get(alignment.file) {
            let (leaf, sibling_kind) = keys::kind_of(sibling, &alignment.source_key)?;
            check_kind(
                &files.main,
                &alignment.target_key,
                kind,
                Some(sibling_kind),
                &sibling.uri,
            )?;
            wanted.entry(alignment.file).or_default().insert(leaf);
        }
    }
    Ok(wanted)
}

fn check_kind(
    main: &ParquetFile,
    name: &str,
    kind: KeyKind,
    other: Option<KeyKind>,
    uri: &str,
) -> Result<(), ShardError> {
    match other {
        Some(other) if !other.can_equal(kind) => Err(ShardError::schema(
            &main.uri,
            format!(
                "key column {name:?} is {}, but {} in {uri}; they can never be equal",
                kind.describe(),
                other.describe()
            ),
        )),
        _ => Ok(()),
    }
}

/// Decodes keys and proves that every sibling lines up.
pub fn load(job: &Job, shard: FetchedShard) -> Result<LoadedShard, ShardError> {
    let FetchedShard { files, plan } = shard;
    let mut main_keys: BTreeMap<String, Arc<KeyColumn>> = BTreeMap::new();
    let mut decode = |name: &str| -> Result<Arc<KeyColumn>, ShardError> {
        if let Some(keys) = main_keys.get(name) {
            return Ok(keys.clone());
        }
        let keys = Arc::new(keys::read(&files.main, name)?);
        main_keys.insert(name.to_owned(), keys.clone());
        Ok(keys)
    };
    for lookup in &job.lookups {
        decode(lookup.target_key())?;
    }
    for alignment in &plan.alignments {
        let Some(sibling) = files.get(alignment.file) else {
            continue;
        };
        let main = decode(&alignment.target_key)?;
        check_aligned(
            &files.main,
            &main,
            &alignment.target_key,
            sibling,
            &alignment.source_key,
        )?;
    }
    main_keys.retain(|name, _| job.lookups.iter().any(|lookup| lookup.target_key() == name));
    Ok(LoadedShard {
        files,
        plan,
        keys: main_keys,
    })
}

/// Row by row: equal keys, and null equals nothing.
pub fn check_aligned(
    main: &ParquetFile,
    main_keys: &KeyColumn,
    main_name: &str,
    other: &ParquetFile,
    other_name: &str,
) -> Result<(), ShardError> {
    let (main_leaf, _) = keys::kind_of(main, main_name)?;
    let (other_leaf, _) = keys::kind_of(other, other_name)?;
    if main_keys.null_count() == 0 && splice::same_bytes((main, main_leaf), (other, other_leaf)) {
        return Ok(());
    }
    let other_keys = keys::read(other, other_name)?;
    match main_keys.first_difference(&other_keys) {
        None => Ok(()),
        Some(row) => {
            let of = |keys: &KeyColumn| {
                if row < keys.len() {
                    show(keys.get(row), keys.kind)
                } else {
                    "no row".to_owned()
                }
            };
            let reason = format!(
                "row {row}: {other_name} is {}, main's {main_name} is {}",
                of(&other_keys),
                of(main_keys)
            );
            Err(ShardError::Misaligned {
                uri: other.uri.clone(),
                reason,
            })
        }
    }
}
