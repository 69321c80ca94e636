//! What a sidecar shard consists of, decided from footers alone, before any row is read.

use std::collections::{BTreeSet, HashMap, HashSet};

use arrow::datatypes::{DataType as Arrow, FieldRef};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::LogicalType;
use parquet::schema::types::{SchemaDescriptor, Type};

use crate::arrow_types::check_adaptable;
use crate::encode::{message, parquet_type};
use crate::error::ShardError;
use crate::keys;
use crate::parquet_file::ParquetFile;

static NULL_WARNING: std::sync::Once = std::sync::Once::new();
static CASE_WARNING: std::sync::Once = std::sync::Once::new();

/// Rows of a shard, at most: their numbers have 32 bits, and Arrow's lengths as many less one.
const MOST_ROWS: usize = i32::MAX as usize;

/// Where the values of a column come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A top-level column of one of the shard's files, unchanged.
    File {
        /// 0 is main, sibling `n` is `n + 1`.
        file: usize,
        /// Position among its top-level columns.
        root: usize,
    },
    /// No values.
    Empty,
    /// What a lookup found for the row's key.
    Lookup {
        /// Number of the lookup in the pipeline.
        lookup: usize,
        /// Position among its columns.
        column: usize,
    },
    /// What a filter says of the row's image.
    Computed {
        /// Number of the filters' step in the pipeline.
        step: usize,
        /// Position among its columns.
        column: usize,
    },
    /// Row by row, the first that has a value.
    FirstPresent {
        /// Candidates, best first.
        candidates: Vec<Value>,
        /// Whether a text of white space counts as no value.
        blank_is_missing: bool,
    },
}

/// A column of the sidecar.
#[derive(Debug, Clone)]
pub struct PlannedColumn {
    /// Its name.
    pub name: String,
    /// Its declared type; `None` keeps the type that it has in its file.
    pub declared: Option<FieldRef>,
    /// Its values.
    pub value: Value,
}

/// Two files that must agree on a key, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alignment {
    /// Number of the sibling's file.
    pub file: usize,
    /// Key column in main.
    pub target_key: String,
    /// Key column in the sibling.
    pub source_key: String,
}

/// The files of one shard: main, and for each merge its sibling, where there is one.
#[derive(Debug, Clone)]
pub struct ShardFiles {
    /// The main shard.
    pub main: ParquetFile,
    /// Siblings, by number.
    pub siblings: Vec<Option<ParquetFile>>,
}

impl ShardFiles {
    /// File by number: 0 is main.
    pub fn get(&self, file: usize) -> Option<&ParquetFile> {
        match file {
            0 => Some(&self.main),
            sibling => self.siblings.get(sibling - 1).and_then(Option::as_ref),
        }
    }
}

/// The columns of a sidecar shard, as ops build them up.
#[derive(Debug, Clone, Default)]
pub struct ColumnPlan {
    /// In the order of the file.
    pub columns: Vec<PlannedColumn>,
    /// Checks to make before any value is copied.
    pub alignments: Vec<Alignment>,
    positions: HashMap<String, usize>,
    protected: BTreeSet<String>,
    declared: Vec<FieldRef>,
    declared_types: HashMap<String, FieldRef>,
}

impl ColumnPlan {
    /// Main's columns but the image column.
    pub fn start(
        main: &ParquetFile,
        key: &str,
        image: Option<&str>,
        declared: &[FieldRef],
    ) -> Result<Self, ShardError> {
        main.check_names()?;
        keys::root_of(main, key)?;
        if main.num_rows() > MOST_ROWS {
            return Err(ShardError::malformed(
                &main.uri,
                format!(
                    "{} rows, by its footer; a shard has {MOST_ROWS} at most",
                    main.num_rows()
                ),
            ));
        }
        let types = declared
            .iter()
            .map(|field| (field.name().clone(), field.clone()));
        let mut plan = Self {
            declared: declared.to_vec(),
            declared_types: types.collect(),
            ..Self::default()
        };
        plan.protected.insert(key.to_owned());
        plan.protected.extend(image.map(str::to_owned));
        for (root, field) in main.roots().iter().enumerate() {
            if Some(field.name()) != image {
                plan.set(field.name(), Value::File { file: 0, root });
            }
        }
        Ok(plan)
    }

    /// Position of a column.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// Values of a column so far.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.position(name)
            .map(|position| &self.columns[position].value)
    }

    /// Sets a column in place, or appends it. Key and image columns stay main's.
    pub fn set(&mut self, name: &str, value: Value) {
        if let Some(position) = self.position(name) {
            if !self.protected.contains(name) {
                self.columns[position].value = value;
            }
            return;
        }
        let declared = self.declared_types.get(name).cloned();
        self.positions.insert(name.to_owned(), self.columns.len());
        self.columns.push(PlannedColumn {
            name: name.to_owned(),
            declared,
            value,
        });
    }

    /// Whether a column always keeps main's values.
    pub fn is_protected(&self, name: &str) -> bool {
        self.protected.contains(name)
    }

    /// Takes columns out, those that always keep main's values excepted.
    pub fn remove(&mut self, names: &[String]) {
        let names: HashSet<&String> = names.iter().collect();
        if names.is_empty() {
            return;
        }
        let protected = &self.protected;
        self.columns
            .retain(|column| !names.contains(&column.name) || protected.contains(&column.name));
        let columns = self.columns.iter().enumerate();
        self.positions = columns
            .map(|(position, column)| (column.name.clone(), position))
            .collect();
    }

    /// Declared columns that nothing has produced are there all the same, without values: every
    /// shard of a job has the same columns.
    pub fn finish(mut self, files: &ShardFiles) -> Result<Self, ShardError> {
        for field in self.declared.clone() {
            if self.position(field.name()).is_none() {
                self.set(field.name(), Value::Empty);
            }
        }
        for column in &self.columns {
            let Some(declared) = &column.declared else {
                continue;
            };
            self.check(&column.value, declared, files)?;
        }
        for column in &self.columns {
            if let (Value::File { file, root }, None) = (&column.value, &column.declared)
                && let Some(file) = files.get(*file)
                && is_null_type(&file.roots()[*root])
            {
                NULL_WARNING.call_once(|| tracing::warn!(shard = %files.main.meta.key, "column {:?} has no type, only nulls; other shards may give it one, and engines cannot read both: declare it in spec.columns, or drop it with extractScaffold", column.name));
            }
        }
        let mut folded: Vec<(String, &str)> = self
            .columns
            .iter()
            .map(|column| (column.name.to_lowercase(), column.name.as_str()))
            .collect();
        folded.sort();
        if let Some(pair) = folded.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            // Every shard has the same columns: once says it all.
            CASE_WARNING.call_once(|| tracing::warn!(shard = %files.main.meta.key, "columns {:?} and {:?} differ in case only; engines that ignore case cannot read both", pair[0].1, pair[1].1));
        }
        Ok(self)
    }

    fn check(
        &self,
        value: &Value,
        declared: &FieldRef,
        files: &ShardFiles,
    ) -> Result<(), ShardError> {
        match value {
            Value::File { file, root } => {
                let Some(file) = files.get(*file) else {
                    return Ok(());
                };
                if file.has_int96(*root) {
                    return Err(ShardError::schema(
                        &file.uri,
                        format!(
                            "column {:?} is INT96; it can pass unchanged if spec.columns does not declare it, or be dropped with extractScaffold",
                            declared.name()
                        ),
                    ));
                }
                let natural = natural_type(file, *root)?;
                check_adaptable(&natural, declared.data_type())
                    .map_err(|reason| ShardError::schema(&file.uri, format!("column {:?} {reason}; declare the type it has, or drop it with extractScaffold", declared.name())))
            }
            Value::FirstPresent { candidates, .. } => candidates
                .iter()
                .try_for_each(|candidate| self.check(candidate, declared, files)),
            Value::Empty | Value::Lookup { .. } | Value::Computed { .. } => Ok(()),
        }
    }
}

/// The Arrow type of a top-level column, from its physical schema alone: an embedded Arrow schema
/// may contradict it, and what other columns are is of no concern.
pub fn natural_type(file: &ParquetFile, root: usize) -> Result<Arrow, ShardError> {
    let field = &file.roots()[root];
    let malformed = |error: &dyn std::fmt::Display| {
        ShardError::malformed(&file.uri, format!("column {:?}: {error}", field.name()))
    };
    let alone = message(vec![field.clone()]).map_err(|error| malformed(&error))?;
    let schema = parquet_to_arrow_schema(&SchemaDescriptor::new(alone), None)
        .map_err(|error| malformed(&error))?;
    match schema.fields().first() {
        Some(field) => Ok(field.data_type().clone()),
        None => Err(malformed(&"it has a type that no reader knows")),
    }
}

/// Whether a column has no type, only nulls.
fn is_null_type(field: &Type) -> bool {
    field.is_primitive()
        && matches!(
            field.get_basic_info().logical_type_ref(),
            Some(LogicalType::Unknown)
        )
}

/// Whether a column can pass as it is: nothing is declared, or its physical type is the one that
/// any other shard has under this declaration. Writers differ in whether they allow nulls, in
/// what they call the items of lists, and in annotations.
pub fn passes_unchanged(
    file: &ParquetFile,
    root: usize,
    declared: Option<&FieldRef>,
) -> Result<bool, ShardError> {
    match declared {
        None => Ok(true),
        Some(field) => {
            let declared =
                parquet_type(field).map_err(|error| ShardError::malformed(&file.uri, error))?;
            let passes = file.roots()[root] == declared;
            if !passes {
                tracing::debug!(file = %file.uri, column = %field.name(), "decoded: {:?} is not {declared:?}", file.roots()[root]);
            }
            Ok(passes)
        }
    }
}
