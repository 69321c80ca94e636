use std::path::PathBuf;

use tempfile::TempDir;

use crate::{
    manifest::{ManifestError, load},
    ops::{FilterName, JoinMode, MergeMode},
    pipeline::Operation,
};

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

const DATASET: &str = "
name: photos
browse: false
main_prefix: s3://bucket/photos_filters
sidecar_prefix: s3://bucket/all_in_one/photos/
key_column: image_key
image_column: image
source_inference:
  markers: [{contains: /a/, source: a}]
  default: photos
schema_extensions:
- {name: filter_clarity, type: filter_clarity_v1}
- {name: dqm, type: dqm_score_v1}
";

const PIPELINE: &str = "
dataset: photos
operations:
- type: extract_scaffold
- type: join_from_parquet
  source: s3://bucket/index/
  columns: [filter_clarity]
  mode: update_if_null
- type: merge_from_sidecar
  source_prefix: s3://bucket/dqm/
  columns: [dqm]
  target_key_column: s3_image_path
  mode: prefer_sidecar
- type: compute_filters
  filters: [edge_density, luma]
  on_error: null_row
  limits: {max_pixels: 1000}
";

const SCHEMAS: &str = "
dqm_score_v1: {raw_score: float64, error: string}
unused_v1: {a: int64}
filter_clarity_v1: {passed: bool, laplacian_var: float64, score: float64}
";

fn layout() -> [(&'static str, &'static str); 3] {
    [
        ("pipelines/team/merge_Photos.yaml", PIPELINE),
        ("datasets/photos.yaml", DATASET),
        ("schemas/scores.yaml", SCHEMAS),
    ]
}

fn pipeline_file(folder: &TempDir) -> PathBuf {
    folder.path().join("pipelines/team/merge_Photos.yaml")
}

#[test]
fn a_pipeline_becomes_a_job() {
    let folder = folder(&layout());
    let job = load(&pipeline_file(&folder)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(job.metadata.name.as_deref(), Some("merge-photos"));
    let spec = &job.spec;
    assert_eq!(spec.dataset.key_column, "image_key");
    assert_eq!(
        spec.dataset.sources.as_ref().unwrap().infer("x/a/y"),
        Some("a")
    );
    let types: Vec<&String> = spec.schemas.keys().collect();
    assert_eq!(
        types,
        ["dqm_score_v1"],
        "only what is used and not built in"
    );
    let operations: Vec<Operation<'_>> = spec
        .pipeline
        .iter()
        .map(|step| step.operation().unwrap())
        .collect();
    let Operation::JoinFromParquet(join) = operations[1] else {
        panic!("{operations:?}")
    };
    assert_eq!(join.mode, JoinMode::UpdateIfNull);
    let Operation::MergeFromSidecar(merge) = operations[2] else {
        panic!("{operations:?}")
    };
    assert_eq!(merge.mode, MergeMode::PreferSidecar);
    assert_eq!(merge.target_key_column.as_deref(), Some("s3_image_path"));
    let Operation::ComputeFilters(filters) = operations[3] else {
        panic!("{operations:?}")
    };
    assert_eq!(filters.filters, [FilterName::EdgeDensity, FilterName::Luma]);
    assert_eq!(filters.limits.max_pixels, 1000);
}

fn mistakes(replace: &str, by: &str) -> String {
    let files = layout().map(|(name, text)| (name, text.replace(replace, by)));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    let folder = folder(&files);
    match load(&pipeline_file(&folder)) {
        Err(error @ ManifestError::Invalid { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn mistakes_name_their_file_and_the_nearest_field() {
    let found = mistakes("source_prefix:", "source_prefx:");
    assert!(found.contains("merge_Photos.yaml has a mistake"), "{found}");
    assert!(
        found.contains("operations[2].source_prefx: unknown field \"source_prefx\"; did you mean \"source_prefix\"?"),
        "{found}"
    );
    let found = mistakes("key_column: image_key", "key_colum: image_key");
    assert!(found.contains("photos.yaml has 2 mistakes"), "{found}");
    assert!(found.contains("did you mean \"key_column\"?"), "{found}");
    let found = mistakes("join_from_parquet", "join_parquet");
    assert!(
        found.contains("did you mean \"join_from_parquet\"?"),
        "{found}"
    );
    let found = mistakes("dataset: photos", "dataset: photo");
    assert!(found.contains("there is no datasets/photo.yaml"), "{found}");
    assert!(found.contains("did you mean \"photos\"?"), "{found}");
    let found = mistakes("dqm_score_v1: {", "dqm_score_v2: {");
    assert!(
        found.contains("spec.columns[1].type: unknown type \"dqm_score_v1\""),
        "{found}"
    );
}

#[test]
fn another_meaning_of_a_built_in_type_is_refused() {
    let found = mistakes("laplacian_var: float64", "laplacian_var: float32");
    assert!(
        found.contains("a built-in type can't be redefined"),
        "{found}"
    );
}

#[test]
fn a_dataset_can_be_a_path() {
    let mut files = layout();
    let pipeline = PIPELINE.replace("dataset: photos", "dataset: ../../datasets/photos.yaml");
    files[0].1 = &pipeline;
    let folder = folder(&files);
    load(&pipeline_file(&folder)).unwrap_or_else(|error| panic!("{error}"));
}
