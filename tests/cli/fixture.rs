//! A dataset in a folder, its manifests, and what came out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use harness::dataset::{Shape, full_job, join_job};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use tempfile::TempDir;

use crate::worker::{Ended, Worker};

/// A folder that goes when this is dropped.
pub struct Fixture(TempDir);

/// A sidecar shard's rows.
pub struct Rows(pub RecordBatch);

impl Fixture {
    /// The usual dataset.
    pub fn new() -> Self {
        Self::of(Shape::default())
    }

    /// A dataset of this shape.
    pub fn of(shape: Shape) -> Self {
        let fixture = Self::empty();
        shape.write(fixture.0.path());
        fixture
    }

    /// No dataset yet.
    pub fn empty() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// A path below the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The folder as a manifest writes it, without a `/` at its end.
    pub fn root(&self) -> String {
        self.0.path().display().to_string()
    }

    /// The text of the job that joins.
    pub fn join(&self) -> String {
        join_job(&self.root(), &format!("{}/out/", self.root()))
    }

    /// The text of the job with every operation.
    pub fn full(&self) -> String {
        full_job(&self.root(), &format!("{}/out/", self.root()))
    }

    /// A command on a manifest with this text.
    pub fn worker(&self, command: &str, text: &str) -> Worker {
        let path = self.path("job.yaml");
        std::fs::write(&path, text).expect("write");
        Worker::on(command, &path)
    }

    /// Runs a manifest.
    pub fn run(&self, text: &str) -> Ended {
        self.worker("run", text).run()
    }

    /// Runs a command that writes a report.
    pub fn report(&self, worker: Worker, code: i32) -> (Ended, Value) {
        let path = self.path("report.json");
        let worker = worker
            .argument("--report")
            .argument(&path.display().to_string());
        let ended = worker.run().expect(code);
        let bytes = std::fs::read(&path).expect("a report");
        std::fs::remove_file(&path).expect("remove");
        (ended, serde_json::from_slice(&bytes).expect("JSON"))
    }

    /// Files below a folder, by relative path; nothing if it is not there.
    pub fn files(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        let root = self.path(folder);
        collect(&root, &root, &mut files);
        files
    }

    /// Shards below a folder, by relative path.
    pub fn shards(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let mut files = self.files(folder);
        files.retain(|name, _| name.ends_with(".parquet"));
        files
    }

    /// The rows of a Parquet file.
    pub fn rows(&self, name: &str) -> Rows {
        rows_of(&self.path(name))
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path
                .strip_prefix(root)
                .expect("below")
                .display()
                .to_string();
            files.insert(name, std::fs::read(&path).expect("read"));
        }
    }
}

/// All rows of a file.
pub fn rows_of(path: &Path) -> Rows {
    let file =
        std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).expect("a footer");
    let schema = builder.schema().clone();
    let batches: Vec<RecordBatch> = builder
        .build()
        .expect("a reader")
        .map(|batch| batch.expect("a batch"))
        .collect();
    Rows(concat_batches(&schema, &batches).expect("one schema"))
}

impl Rows {
    /// Names of the columns.
    pub fn columns(&self) -> Vec<String> {
        let schema = self.0.schema();
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// A text column, of whatever width.
    pub fn texts(&self, name: &str) -> Vec<Option<String>> {
        let array = self.0.column_by_name(name).expect("the column");
        let owned = |text: Option<&str>| text.map(str::to_owned);
        match array.as_string_opt::<i32>() {
            Some(texts) => texts.iter().map(owned).collect(),
            None => array.as_string::<i64>().iter().map(owned).collect(),
        }
    }

    /// A column of whole numbers.
    pub fn integers(&self, name: &str) -> Vec<Option<i64>> {
        let array = self.0.column_by_name(name).expect("the column");
        array.as_primitive::<Int64Type>().iter().collect()
    }

    /// A column of whole numbers of 32 bits.
    #[allow(dead_code, reason = "not all binaries of tests need it")]
    pub fn narrow_integers(&self, name: &str) -> Vec<Option<i64>> {
        let array = self.0.column_by_name(name).expect("the column");
        let numbers = array.as_primitive::<Int32Type>().iter();
        numbers.map(|number| number.map(i64::from)).collect()
    }

    /// A field of a struct column; every struct is present.
    pub fn floats_in(&self, name: &str, field: &str) -> Vec<Option<f64>> {
        let array = self.0.column_by_name(name).expect("the column").as_struct();
        assert_eq!(array.null_count(), 0, "structs are present");
        let child = array.column_by_name(field).expect("the field");
        child.as_primitive::<Float64Type>().iter().collect()
    }
}
