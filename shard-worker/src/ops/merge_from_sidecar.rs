//! `mergeFromSidecar`: columns of another sidecar of the same main shards.

use std::collections::HashSet;

use crds::{MergeFromSidecar, MergeMode};
use futures::StreamExt;
use storage::{ObjectMeta, Store};

use crate::column_plan::{Alignment, ColumnPlan, ShardFiles, Value};
use crate::error::{Error, Result, ShardError};
use crate::ops::{Op, OpContext, Opened, Sibling};
use crate::parquet_file::{ParquetFile, TailHint};

#[derive(Debug)]
struct Merge {
    sibling: usize,
    columns: Option<Vec<String>>,
    mode: MergeMode,
    target_key: String,
    source_key: String,
    /// Columns that a shard without a sibling has, too.
    declared: Option<HashSet<String>>,
}

/// Opens the prefix of the siblings, and looks at the first one: a wrong prefix or column is
/// better known now than once a shard.
pub async fn open(spec: &MergeFromSidecar, context: &OpContext<'_>) -> Result<Opened> {
    let store = context.stores.open(&spec.source_prefix)?;
    check_first(spec, context, &*store).await?;
    let target_key = spec
        .target_key_column
        .clone()
        .unwrap_or_else(|| context.dataset.key_column.clone());
    let op = Merge {
        sibling: context.next_sibling,
        columns: spec.columns.clone(),
        mode: spec.mode,
        source_key: spec
            .source_key_column
            .clone()
            .unwrap_or_else(|| target_key.clone()),
        target_key,
        declared: (!spec.required).then(|| {
            let declared = context.declared.iter();
            declared.map(|field| field.name().clone()).collect()
        }),
    };
    Ok(Opened {
        op: Box::new(op),
        lookup: None,
        sibling: Some(Sibling {
            uri: crds::prefix::normalize(&spec.source_prefix),
            store,
            required: spec.required,
        }),
        filters: None,
    })
}

/// Siblings that are looked at before all are taken for wrong.
const LOOKED_AT: usize = 8;

/// Refuses a prefix without siblings, and one whose siblings lack a column. A file that is no
/// main shard's sibling says nothing of those that are.
async fn check_first(
    spec: &MergeFromSidecar,
    context: &OpContext<'_>,
    store: &dyn Store,
) -> Result<()> {
    if !spec.required
        && let Some(name) = spec.columns.iter().flatten().find(|name| {
            let is_declared = context.declared.iter().any(|field| field.name() == *name);
            !is_declared && !is_mains(spec, context, name)
        })
    {
        return Err(Error::Usage(undeclared(name)));
    }
    let page = store.list_shards().next().await.transpose()?;
    let mut shards = page.unwrap_or_default().shards.into_iter();
    let Some(first) = shards.next() else {
        if spec.required {
            return Err(Error::side_input(
                &spec.source_prefix,
                "no Parquet shard here; expected one beside each main shard, or set required: false",
            ));
        }
        return Ok(());
    };
    let Some(mut wrong) = missing_column(spec, context, store, first.clone()).await? else {
        return Ok(());
    };
    let main = context.stores.open(&context.dataset.main_prefix)?;
    let keys: Vec<String> = std::iter::once(&first)
        .chain(shards.as_slice())
        .map(|shard| shard.key.clone())
        .collect();
    let beside: HashSet<String> = main
        .find(&keys)
        .await?
        .into_iter()
        .map(|meta| meta.key)
        .collect();
    let mut is_sibling = beside.contains(&first.key);
    let others = shards.filter(|shard| beside.contains(&shard.key));
    for other in others.take(LOOKED_AT) {
        match missing_column(spec, context, store, other).await? {
            Some(error) if !is_sibling => (wrong, is_sibling) = (error, true),
            Some(_) => {}
            None => return Ok(()),
        }
    }
    // Where no sibling was found, each shard finds out for itself.
    if is_sibling { Err(wrong) } else { Ok(()) }
}

/// What a sibling lacks, if it can be read: a broken one is its own shard's failure.
async fn missing_column(
    spec: &MergeFromSidecar,
    context: &OpContext<'_>,
    store: &dyn Store,
    meta: ObjectMeta,
) -> Result<Option<Error>> {
    let Ok(sibling) = ParquetFile::open(store, meta, &TailHint::default()).await else {
        return Ok(None);
    };
    if let Some(name) = undeclared_column(spec, context, &sibling).await {
        return Ok(Some(Error::Usage(undeclared(&name))));
    }
    let [key, _] = keys_of(spec, context);
    let columns = spec.columns.iter().flatten().map(String::as_str);
    let mut wanted = std::iter::once(key).chain(columns);
    let missing = wanted.find(|name| sibling.root(name).is_none());
    Ok(missing.map(|name| {
        Error::side_input(
            &sibling.uri,
            format!(
                "no column {name:?}; its columns are {}",
                sibling.column_names()
            ),
        )
    }))
}

/// The sibling's key column, and main's for this step.
fn keys_of<'a>(spec: &'a MergeFromSidecar, context: &'a OpContext<'_>) -> [&'a str; 2] {
    let target = spec.target_key_column.as_ref();
    let target = target.unwrap_or(&context.dataset.key_column);
    [spec.source_key_column.as_ref().unwrap_or(target), target]
}

/// Whether a column keeps main's values, whatever a sibling has.
fn is_mains(spec: &MergeFromSidecar, context: &OpContext<'_>, name: &str) -> bool {
    keys_of(spec, context).contains(&name)
        || context.dataset.key_column == name
        || context.dataset.image_column.as_deref() == Some(name)
}

/// A column that shards with a sibling would have, and those without would not: where all columns
/// are merged, as far as the first shards tell.
async fn undeclared_column(
    spec: &MergeFromSidecar,
    context: &OpContext<'_>,
    sibling: &ParquetFile,
) -> Option<String> {
    if spec.required || spec.columns.is_some() {
        return None;
    }
    let is_declared = |name: &str| context.declared.iter().any(|field| field.name() == name);
    let roots = sibling.roots().iter().map(|field| field.name());
    let undeclared: Vec<&str> = roots
        .filter(|name| !is_declared(name) && !is_mains(spec, context, name))
        .collect();
    let name = undeclared.first()?;
    if spec.mode == MergeMode::PreferSidecar {
        return Some((*name).to_owned());
    }
    // Another step may have put it there: each shard will tell.
    if context.next_sibling > 0 {
        return None;
    }
    let store = context.stores.open(&context.dataset.main_prefix).ok()?;
    let beside = store.head(&sibling.meta.key).await.ok()?;
    let main = ParquetFile::open(&*store, beside, &TailHint::default())
        .await
        .ok()?;
    let lacking = undeclared
        .into_iter()
        .find(|name| main.root(name).is_none());
    lacking.map(str::to_owned)
}

/// Where a shard has no sibling it could not have such a column: shards would differ.
fn undeclared(name: &str) -> String {
    format!(
        "mergeFromSidecar with required: false: column {name:?} is not declared, so that shards without a sibling would lack it; add {{name: {name}, type: ...}} to spec.columns, or leave it out of columns"
    )
}

impl Op for Merge {
    fn plan(&self, plan: &mut ColumnPlan, files: &ShardFiles) -> Result<(), ShardError> {
        let number = self.sibling + 1;
        let Some(sibling) = files.get(number) else {
            return Ok(());
        };
        sibling.check_names()?;
        let main = &files.main;
        if main.root(&self.target_key).is_none() {
            return Err(ShardError::schema(
                &main.uri,
                format!(
                    "no column {:?} to align {} by; name another targetKeyColumn",
                    self.target_key, sibling.uri
                ),
            ));
        }
        if sibling.num_rows() != main.num_rows() {
            return Err(ShardError::Misaligned {
                uri: sibling.uri.clone(),
                reason: format!("{} rows, main has {}", sibling.num_rows(), main.num_rows()),
            });
        }
        let roots = sibling.roots_by_name();
        let all = || sibling.roots().iter().map(|field| field.name()).collect();
        let wanted: Vec<&str> = match &self.columns {
            Some(columns) => columns.iter().map(String::as_str).collect(),
            None => all(),
        };
        for name in wanted {
            let is_key = *name == self.source_key || *name == self.target_key;
            if is_key || plan.is_protected(name) {
                continue;
            }
            let Some(&root) = roots.get(name) else {
                return Err(ShardError::schema(
                    &sibling.uri,
                    format!(
                        "no column {name:?}; its columns are {}",
                        sibling.column_names()
                    ),
                ));
            };
            let main_has_it = !matches!(plan.value(name), None | Some(Value::Empty));
            if self.mode == MergeMode::PreferSidecar || !main_has_it {
                if self
                    .declared
                    .as_ref()
                    .is_some_and(|declared| !declared.contains(name))
                {
                    return Err(ShardError::schema(&sibling.uri, undeclared(name)));
                }
                plan.set(name, Value::File { file: number, root });
            }
        }
        plan.alignments.push(Alignment {
            file: number,
            target_key: self.target_key.clone(),
            source_key: self.source_key.clone(),
        });
        Ok(())
    }
}
