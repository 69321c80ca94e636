use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    columns::{Column, StructField},
    dataset::Dataset,
    ops::{ComputeFilters, DecodeLimits, FilterName, OnRowError},
};

type Schemas = BTreeMap<String, Vec<StructField>>;

fn schemas(types: &[(&str, &[(&str, &str)])]) -> Schemas {
    types
        .iter()
        .map(|(name, fields)| {
            let fields = fields
                .iter()
                .map(|(name, text)| StructField::new(*name, *text));
            ((*name).to_owned(), fields.collect())
        })
        .collect()
}

fn resolve(expression: &str, schemas: &Schemas) -> Result<DataType, TypeError> {
    TypeRegistry::new(schemas)?.resolve(expression, "here")
}

#[test]
fn expressions() {
    let own = schemas(&[("t", &[("a", "int64"), ("b", "list<score_v1>")])]);
    for (expression, expected) in [
        ("bool", "bool"),
        ("double", "float64"),
        (" list < list<utf8> > ", "list<list<string>>"),
        (
            "score_v1",
            "struct<raw_score: float64, score: float64, error: string>",
        ),
        (
            "list<struct t>",
            "list<struct<a: int64, b: list<struct<raw_score: float64, score: float64, error: string>>>>",
        ),
    ] {
        assert_eq!(resolve(expression, &own).unwrap().to_string(), expected);
    }
}

#[test]
fn faults() {
    let none = Schemas::new();
    for (expression, expected) in [
        ("", "a type is missing at its end"),
        ("list", "list needs the type of its elements"),
        ("list<int64", "'>' is missing at its end"),
        ("int64>", "unexpected '>' after the type"),
        ("struct", "struct needs the name"),
        ("filter_clarty_v1", "did you mean \"filter_clarity_v1\"?"),
    ] {
        let message = resolve(expression, &none).unwrap_err().to_string();
        assert!(message.contains(expected), "{expression}: {message}");
    }
    let deep = format!("{}int64{}", "list<".repeat(40), ">".repeat(40));
    assert!(
        resolve(&deep, &none)
            .unwrap_err()
            .to_string()
            .contains("nested deeper")
    );
}

#[test]
fn faulty_struct_types() {
    for (types, path, expected) in [
        (schemas(&[("t", &[])]), "spec.schemas.t", "has no fields"),
        (
            schemas(&[("score_v1", &[("a", "int64")])]),
            "spec.schemas.score_v1",
            "can't be redefined",
        ),
        (
            schemas(&[("string", &[("a", "int64")])]),
            "spec.schemas.string",
            "can't be redefined",
        ),
        (
            schemas(&[("a b", &[("a", "int64")])]),
            "spec.schemas.a b",
            "can't be the name of a type",
        ),
        (
            schemas(&[("t", &[("a", "int64"), ("A", "int64")])]),
            "spec.schemas.t[1].name",
            "differ only in case",
        ),
        (
            schemas(&[("t", &[("a", "list<u>")]), ("u", &[("b", "t")])]),
            "spec.schemas.u[0].type",
            "contains itself, through t, u",
        ),
    ] {
        let error = resolve("int64", &types).unwrap_err();
        assert_eq!(error.path(), path);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn every_built_in_type_has_fields_and_every_filter_a_type() {
    for name in BUILT_IN_NAMES {
        assert!(matches!(built_in(name), Some(DataType::Struct(fields)) if !fields.is_empty()));
    }
    for filter in FilterName::ALL {
        assert!(
            BUILT_IN_NAMES.contains(&filter.type_name().as_str()),
            "{filter}"
        );
    }
}

fn spec(columns: Vec<Column>) -> SidecarJobSpec {
    let dataset = Dataset {
        main_prefix: "main/".into(),
        sidecar_prefix: None,
        key_column: "key".into(),
        image_column: Some("image".into()),
        sources: None,
    };
    let filters = ComputeFilters {
        filters: vec![FilterName::Luma, FilterName::Clarity],
        on_error: OnRowError::default(),
        limits: DecodeLimits::default(),
    };
    SidecarJobSpec::new(dataset, columns, vec![filters.into()])
}

#[test]
fn filters_add_the_columns_that_are_not_declared() {
    let declared = vec![
        Column::new("filter_clarity", "filter_clarity_v1"),
        Column::new("n", "int8"),
    ];
    let columns = spec(declared).resolved_columns().unwrap();
    let names: Vec<&str> = columns.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["filter_clarity", "n", "filter_luma"]);

    let error = spec(vec![Column::new("filter_luma", "score_v1")])
        .resolved_columns()
        .unwrap_err();
    assert!(
        error.to_string().contains("has the type filter_luma_v1"),
        "{error}"
    );
}

fn expression() -> impl Strategy<Value = TypeExpression> {
    let leaf = prop_oneof![
        (0..PRIMITIVES.len())
            .prop_map(|index| TypeExpression::Primitive(PRIMITIVES[index].1.clone())),
        "[a-z][a-z0-9_.-]{0,12}_v[0-9]".prop_map(TypeExpression::Named),
    ];
    leaf.prop_recursive(8, 8, 1, |inner| {
        inner.prop_map(|element| TypeExpression::List(Box::new(element)))
    })
}

proptest! {
    #[test]
    fn expressions_read_back(expression in expression()) {
        prop_assert_eq!(parse(&expression.to_string()).unwrap(), expression);
    }

    #[test]
    fn parsing_never_panics(text in "\\PC{0,40}") {
        let _ = parse(&text);
    }
}
