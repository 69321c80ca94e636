//! `joinFromParquet`: columns of an index, looked up by key.

use crds::prefix::normalize_location;
use crds::{JoinFromParquet, JoinMode};
use storage::state::side_inputs::{INDEX_SUFFIXES, SideInput as Pin};

use crate::column_plan::{ColumnPlan, ShardFiles, Value};
use crate::error::{Result, ShardError};
use crate::lookup::index::{Index, IndexRequest};
use crate::lookup::join::JoinLookup;
use crate::ops::{Op, OpContext, Opened};

#[derive(Debug)]
struct Join {
    lookup: usize,
    columns: Vec<String>,
    mode: JoinMode,
}

/// Opens the index: every footer is read, every column checked against its declaration.
pub async fn open(spec: &JoinFromParquet, context: &OpContext<'_>) -> Result<Opened> {
    let fields = spec
        .columns
        .iter()
        .map(|name| context.declared("joinFromParquet", name))
        .collect::<Result<Vec<_>>>()?;
    let target_key = spec
        .target_key_column
        .clone()
        .unwrap_or_else(|| context.dataset.key_column.clone());
    let key_column = spec.source_key_column.as_ref().unwrap_or(&target_key);
    let input = context.side_input(&spec.source, &INDEX_SUFFIXES).await?;
    let request = IndexRequest {
        uri: &spec.source,
        store: input.store(),
        objects: input.objects.clone(),
        is_folder: input.is_folder,
        key_column,
        columns: &fields,
        sources: context.sources,
        runtime: context.runtime.clone(),
    };
    let (index, kind) = Index::open(request).await?;
    let files = index.files.iter().map(|file| &file.file);
    let pin = Pin::new(
        &normalize_location(&spec.source),
        files.map(|file| (&file.meta, file.footer_sha256.as_str())),
    );
    let lookup = JoinLookup::new(
        &spec.source,
        target_key,
        kind,
        fields,
        index,
        context.sources.clone(),
    );
    let op = Join {
        lookup: context.next_lookup,
        columns: spec.columns.clone(),
        mode: spec.mode,
    };
    Ok(Opened {
        op: Box::new(op),
        lookup: Some((input.watch(lookup), pin)),
        sibling: None,
        filters: None,
    })
}

impl Op for Join {
    fn plan(&self, plan: &mut ColumnPlan, _files: &ShardFiles) -> Result<(), ShardError> {
        for (column, name) in self.columns.iter().enumerate() {
            let found = Value::Lookup {
                lookup: self.lookup,
                column,
            };
            let value = match (self.mode, plan.value(name)) {
                (JoinMode::UpdateIfNull, Some(before)) if *before != Value::Empty => {
                    Value::FirstPresent {
                        candidates: vec![before.clone(), found],
                        blank_is_missing: false,
                    }
                }
                _ => found,
            };
            plan.set(name, value);
        }
        Ok(())
    }
}
