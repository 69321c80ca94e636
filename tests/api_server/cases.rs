//! For each rule a manifest that breaks it, and one that just keeps it.

use crds::rules;
use kube::core::Rule;

/// A manifest that breaks one rule, and one that just keeps it. Both are laid over
/// [`super::base_spec`]; lists replace lists.
pub struct Case {
    /// Where the rule is in the schema.
    pub path: &'static str,
    /// The rule.
    pub rule: Rule,
    /// What keeps it.
    pub good: &'static str,
    /// What breaks it.
    pub bad: &'static str,
}

/// The cases.
pub fn cases() -> Vec<Case> {
    let case = |path, rule, good, bad| Case {
        path,
        rule,
        good,
        bad,
    };
    let mut cases = vec![
        case(
            "spec",
            rules::columns_are_not_key_or_image(),
            "columns: [{name: keys, type: string}]",
            "columns: [{name: Key, type: string}]",
        ),
        case(
            "spec",
            rules::filters_need_the_image(),
            "{dataset: {imageColumn: image}, pipeline: [{computeFilters: {filters: [luma]}}]}",
            "pipeline: [{computeFilters: {filters: [luma]}}]",
        ),
        case(
            "spec",
            rules::joined_columns_are_declared(),
            "pipeline: [{joinFromParquet: {source: 's3://bucket/index/', columns: [c]}}]",
            "pipeline: [{joinFromParquet: {source: 's3://bucket/index/', columns: [d]}}]",
        ),
        case(
            "spec",
            rules::output_apart_from_main(),
            "output: {prefix: 's3://bucket/main_sidecar'}",
            "output: {prefix: 's3://bucket/main/sidecar'}",
        ),
        case(
            "spec",
            rules::output_apart_from_sidecar(),
            "{dataset: {sidecarPrefix: 's3://bucket/side/'}, output: {prefix: 's3://bucket/side'}}",
            "{dataset: {sidecarPrefix: 's3://bucket/side/'}, output: {prefix: 's3://bucket/side/new'}}",
        ),
        case(
            "spec",
            rules::output_apart_from_join_sources(),
            "{pipeline: [{joinFromParquet: {source: 's3://bucket/index/', columns: [c]}}], output: {prefix: 's3://bucket/out'}}",
            "{pipeline: [{joinFromParquet: {source: 's3://bucket/index/', columns: [c]}}], output: {prefix: 's3://bucket/index'}}",
        ),
        case(
            "spec",
            rules::output_apart_from_merge_sources(),
            "{pipeline: [{mergeFromSidecar: {sourcePrefix: 's3://bucket/dqm'}}], output: {prefix: 's3://bucket/dqm2'}}",
            "{pipeline: [{mergeFromSidecar: {sourcePrefix: 's3://bucket/dqm/a'}}], output: {prefix: 's3://bucket/dqm'}}",
        ),
        case(
            "spec",
            rules::output_apart_from_recaption_sources(),
            "{pipeline: [{recaptionMerge: {source: 's3://bucket/texts/a.jsonl', columns: [c]}}], output: {prefix: 's3://bucket/out'}}",
            "{pipeline: [{recaptionMerge: {source: 's3://bucket/texts/a.jsonl', columns: [c]}}], output: {prefix: 's3://bucket/texts'}}",
        ),
        case(
            "spec.columns",
            rules::column_names_are_unique(),
            "columns: [{name: a, type: int64}, {name: b, type: int64}]",
            "columns: [{name: a, type: int64}, {name: A, type: int64}]",
        ),
        case(
            "spec.schemas",
            rules::built_in_types_are_not_redefined(),
            "schemas: {score_v2: [{name: a, type: int64}]}",
            "schemas: {score_v1: [{name: a, type: int64}]}",
        ),
        case(
            "spec.schemas.NAME",
            rules::field_names_are_unique(),
            "schemas: {t: [{name: a, type: int64}, {name: b, type: int64}]}",
            "schemas: {t: [{name: a, type: int64}, {name: A, type: int64}]}",
        ),
        case(
            "spec.dataset",
            rules::image_is_not_the_key(),
            "dataset: {imageColumn: image}",
            "dataset: {imageColumn: KEY}",
        ),
        case(
            "spec.dataset",
            rules::sidecar_apart_from_main(),
            "dataset: {sidecarPrefix: 's3://bucket/main_sidecar/'}",
            "dataset: {sidecarPrefix: 's3://bucket/main/sidecar/'}",
        ),
        case(
            "spec.dataset.sources",
            rules::sources_say_something(),
            "dataset: {sources: {default: a}}",
            "dataset: {sources: {}}",
        ),
        case(
            "spec.dataset.sources.markers",
            rules::markers_are_unique(),
            "dataset: {sources: {markers: [{contains: /a/, source: a}, {contains: /b/, source: a}]}}",
            "dataset: {sources: {markers: [{contains: /a/, source: a}, {contains: /a/, source: b}]}}",
        ),
        case(
            "spec.pipeline[]",
            rules::one_operation(),
            "pipeline: [{extractScaffold: {drop: [a]}}]",
            "pipeline: [{extractScaffold: {}, mergeFromSidecar: {sourcePrefix: 's3://bucket/dqm'}}]",
        ),
        case(
            "spec.storage.endpoint",
            rules::endpoint_is_a_url(),
            "storage: {endpoint: 'http://127.0.0.1:7070/'}",
            "storage: {endpoint: 'https://s3.example.com/bucket'}",
        ),
        case(
            "spec.worker.env",
            rules::environment_is_unique(),
            "worker: {env: [{name: A, value: ''}, {name: B, value: ''}]}",
            "worker: {env: [{name: A, value: '1'}, {name: A, value: '2'}]}",
        ),
        case(
            "spec.worker.env",
            rules::environment_is_not_the_operators(),
            "worker: {env: [{name: MY_AWS_REGION, value: ''}, {name: SIDECARJOBS, value: ''}]}",
            "worker: {env: [{name: SIDECARJOB_S3_PATH_STYLE, value: 'true'}]}",
        ),
    ];
    for (path, good, bad) in [
        (
            "spec.dataset.mainPrefix",
            "dataset: {mainPrefix: 's3://bucket/a b+c%2F=#/ü'}",
            "dataset: {mainPrefix: 'https://bucket/main'}",
        ),
        (
            "spec.dataset.sidecarPrefix",
            "dataset: {sidecarPrefix: demo-data/sidecar/}",
            "dataset: {sidecarPrefix: 's3://B/sidecar/'}",
        ),
        (
            "spec.output.prefix",
            "output: {prefix: 'file:///data/out'}",
            "output: {prefix: 's3://bucket/a/../b'}",
        ),
        (
            "spec.pipeline[].joinFromParquet.source",
            "pipeline: [{joinFromParquet: {source: ./index.parquet, columns: [c]}}]",
            "pipeline: [{joinFromParquet: {source: 's3://bucket/a//b', columns: [c]}}]",
        ),
        (
            "spec.pipeline[].mergeFromSidecar.sourcePrefix",
            "pipeline: [{mergeFromSidecar: {sourcePrefix: ../scores}}]",
            "pipeline: [{mergeFromSidecar: {sourcePrefix: 'gs://bucket/scores'}}]",
        ),
        (
            "spec.pipeline[].recaptionMerge.source",
            "pipeline: [{recaptionMerge: {source: /data/texts.jsonl, columns: [c]}}]",
            "pipeline: [{recaptionMerge: {source: 's3://', columns: [c]}}]",
        ),
    ] {
        cases.push(case(path, rules::is_a_prefix(), good, bad));
    }
    for (path, good, bad) in [
        (
            "spec.pipeline[].extractScaffold.drop",
            "pipeline: [{extractScaffold: {drop: [a, A]}}]",
            "pipeline: [{extractScaffold: {drop: [a, a]}}]",
        ),
        (
            "spec.pipeline[].joinFromParquet.columns",
            "pipeline: [{joinFromParquet: {source: i.parquet, columns: [c]}}]",
            "pipeline: [{joinFromParquet: {source: i.parquet, columns: [c, c]}}]",
        ),
        (
            "spec.pipeline[].mergeFromSidecar.columns",
            "pipeline: [{mergeFromSidecar: {sourcePrefix: dqm, columns: [c, d]}}]",
            "pipeline: [{mergeFromSidecar: {sourcePrefix: dqm, columns: [c, c]}}]",
        ),
        (
            "spec.pipeline[].recaptionMerge.columns",
            "pipeline: [{recaptionMerge: {source: t.jsonl, columns: [c, d]}}]",
            "pipeline: [{recaptionMerge: {source: t.jsonl, columns: [c, c]}}]",
        ),
        (
            "spec.pipeline[].computeFilters.filters",
            "{dataset: {imageColumn: i}, pipeline: [{computeFilters: {filters: [luma, clarity]}}]}",
            "{dataset: {imageColumn: i}, pipeline: [{computeFilters: {filters: [luma, luma]}}]}",
        ),
    ] {
        cases.push(case(path, rules::names_are_unique(), good, bad));
    }
    cases
}

/// Manifests whose shape or bounds are wrong.
pub const MISSHAPEN: [&str; 9] = [
    "columms: []",
    "columns: {a: int64}",
    "onSpecChange: rerun",
    "canary: {minMatchRate: 1.5}",
    "throughput: {maxWorkers: 0}",
    "queue: Not_A_Label",
    "pipeline: []",
    "worker: {resources: {limits: {cpu: many}}}",
    "dataset: {mainPrefix: ''}",
];
