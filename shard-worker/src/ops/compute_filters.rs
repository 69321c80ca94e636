//! `computeFilters`: measurements of the images themselves.

use crds::ComputeFilters;

use crate::arrow_types::spell;
use crate::column_plan::{ColumnPlan, ShardFiles, Value};
use crate::error::{Error, Result, ShardError};
use crate::filters::table::ERRORS;
use crate::ops::{Op, OpContext, Opened};

#[derive(Debug)]
struct Filters {
    step: usize,
    columns: Vec<String>,
    /// Place of the column of reasons, if it is declared.
    errors: Option<usize>,
}

/// Opens the op.
pub async fn open(spec: &ComputeFilters, context: &OpContext<'_>) -> Result<Opened> {
    if context.dataset.image_column.is_none() {
        return Err(Error::Usage(
            "computeFilters needs the images; name their column in dataset.imageColumn".to_owned(),
        ));
    }
    let columns: Vec<String> = spec
        .filters
        .iter()
        .map(|filter| filter.column_name())
        .collect();
    for name in &columns {
        context.declared("computeFilters", name)?;
    }
    let declared = |field: &&arrow::datatypes::FieldRef| field.name() == ERRORS;
    let errors = context.declared.iter().find(declared);
    if let Some(field) = errors
        && *field.data_type() != arrow::datatypes::DataType::LargeUtf8
    {
        return Err(Error::Usage(format!(
            "computeFilters: column {ERRORS:?} is declared as {}; reasons are texts, declare it as string",
            spell(field.data_type())
        )));
    }
    let mut opened = Opened::plain(Filters {
        step: context.next_filters,
        errors: errors.map(|_| columns.len()),
        columns,
    });
    opened.filters = Some(spec.clone());
    Ok(opened)
}

impl Op for Filters {
    fn plan(&self, plan: &mut ColumnPlan, _files: &ShardFiles) -> Result<(), ShardError> {
        let computed = |column| Value::Computed {
            step: self.step,
            column,
        };
        for (column, name) in self.columns.iter().enumerate() {
            plan.set(name, computed(column));
        }
        if let Some(column) = self.errors {
            // Of two steps, either may have a reason.
            let value = match plan.value(ERRORS) {
                Some(before @ (Value::Computed { .. } | Value::FirstPresent { .. })) => {
                    Value::FirstPresent {
                        candidates: vec![before.clone(), computed(column)],
                        blank_is_missing: false,
                    }
                }
                _ => computed(column),
            };
            plan.set(ERRORS, value);
        }
        Ok(())
    }
}
