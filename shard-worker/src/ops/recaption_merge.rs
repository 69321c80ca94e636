//! `recaptionMerge`: new texts, looked up by key. A blank text never replaces a text.

use crds::prefix::normalize_location;
use crds::{RecaptionMerge, RecaptionMode};
use storage::state::side_inputs::{SideInput as Pin, TEXT_SUFFIXES};

use crate::arrow_types::spell;
use crate::column_plan::{ColumnPlan, ShardFiles, Value};
use crate::error::{Error, Result, ShardError};
use crate::lookup::texts::{TextFiles, TextLookup};
use crate::ops::{Op, OpContext, Opened};

#[derive(Debug)]
struct Recaption {
    lookup: usize,
    columns: Vec<String>,
    mode: RecaptionMode,
}

/// Opens the files of texts; of Parquet files the footers are read and checked.
pub async fn open(spec: &RecaptionMerge, context: &OpContext<'_>) -> Result<Opened> {
    let fields = spec
        .columns
        .iter()
        .map(|name| context.declared("recaptionMerge", name))
        .collect::<Result<Vec<_>>>()?;
    if let Some(field) = fields
        .iter()
        .find(|field| *field.data_type() != arrow::datatypes::DataType::LargeUtf8)
    {
        return Err(Error::Usage(format!(
            "recaptionMerge: column {:?} is declared as {}; only texts can be merged, declare it as string",
            field.name(),
            spell(field.data_type())
        )));
    }
    let target_key = spec
        .target_key_column
        .clone()
        .unwrap_or_else(|| context.dataset.key_column.clone());
    let key_column = spec
        .source_key_column
        .clone()
        .unwrap_or_else(|| target_key.clone());
    let input = context.side_input(&spec.source, &TEXT_SUFFIXES).await?;
    let files = TextFiles::open(
        &spec.source,
        input.store(),
        input.objects.clone(),
        key_column,
        spec.columns.clone(),
        context.runtime.clone(),
    )
    .await?;
    let hashed = files.content_hashes().await?;
    let hashed = hashed.iter().map(|(meta, hash)| (meta, hash.as_str()));
    let pin = Pin::new(&normalize_location(&spec.source), hashed);
    let lookup = TextLookup::new(&spec.source, target_key, fields, files);
    let op = Recaption {
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

impl Op for Recaption {
    fn plan(&self, plan: &mut ColumnPlan, _files: &ShardFiles) -> Result<(), ShardError> {
        for (column, name) in self.columns.iter().enumerate() {
            let found = Value::Lookup {
                lookup: self.lookup,
                column,
            };
            let candidates = match (plan.value(name), self.mode) {
                (None | Some(Value::Empty), _) => vec![found],
                (Some(before), RecaptionMode::IfNull) => vec![before.clone(), found],
                (Some(before), RecaptionMode::Always) => vec![found, before.clone()],
            };
            let value = match <[Value; 1]>::try_from(candidates) {
                Ok([only]) => only,
                Err(candidates) => Value::FirstPresent {
                    candidates,
                    blank_is_missing: true,
                },
            };
            plan.set(name, value);
        }
        Ok(())
    }
}
