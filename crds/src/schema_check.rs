//! Checking a value against the schema, as the API server does.
//!
//! The checks are those of a structural schema: types, required and unknown fields, enums,
//! bounds and patterns. Rules in CEL come after them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde_json::Value;

use crate::{manifest::Violation, suggest::did_you_mean};

/// What a check has found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Every mistake, in the order of the schema.
    pub violations: Vec<Violation>,
    /// Whether fields or types are wrong, so that rules over them would only confuse.
    pub is_misshapen: bool,
}

impl Findings {
    fn misshapen(&mut self, path: &str, message: String) {
        self.is_misshapen = true;
        self.out_of_bounds(path, message);
    }

    fn out_of_bounds(&mut self, path: &str, message: String) {
        self.violations.push(Violation {
            path: path.to_owned(),
            message,
        });
    }
}

/// Removes members that are null: no field is nullable, so null means absent.
pub(crate) fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, member| !member.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Checks `value`, which is at `path`, against `schema`.
pub(crate) fn check(schema: &JSONSchemaProps, value: &Value, path: &str, findings: &mut Findings) {
    if schema.x_kubernetes_int_or_string == Some(true) {
        match value {
            Value::String(text) => check_string(schema, text, path, findings),
            Value::Number(number) if number.is_i64() => {}
            other => findings.misshapen(
                path,
                format!("expected a whole number or text, found {}", kind(other)),
            ),
        }
        return;
    }
    match (schema.type_.as_deref(), value) {
        (Some("object"), Value::Object(map)) => check_object(schema, map, path, findings),
        (Some("array"), Value::Array(values)) => check_array(schema, values, path, findings),
        (Some("string"), Value::String(text)) => check_string(schema, text, path, findings),
        (Some("boolean"), Value::Bool(_)) | (None, _) => {}
        (Some("integer"), Value::Number(number)) if is_whole(number) => {
            check_number(schema, number, path, findings);
        }
        (Some("number"), Value::Number(number)) => check_number(schema, number, path, findings),
        (Some(expected), found) => {
            let hint = match (expected, found) {
                ("string", Value::Number(_) | Value::Bool(_)) => "; put it in quotes",
                ("object", Value::Null) => "; write {} for no settings",
                _ => "",
            };
            findings.misshapen(
                path,
                format!("expected {}, found {}{hint}", noun(expected), kind(found)),
            );
        }
    }
}

fn check_object(
    schema: &JSONSchemaProps,
    map: &serde_json::Map<String, Value>,
    path: &str,
    findings: &mut Findings,
) {
    let count = map.len();
    if schema.max_properties.is_some_and(|max| exceeds(count, max)) {
        let max = schema.max_properties.unwrap_or_default();
        findings.out_of_bounds(
            path,
            format!("expected at most {max} entries, found {count}"),
        );
    }
    for name in schema.required.iter().flatten() {
        if !map.contains_key(name) {
            findings.misshapen(&join(path, name), "required, but missing".to_owned());
        }
    }
    for (name, member) in map {
        let at = join(path, name);
        let property = schema.properties.as_ref().and_then(|all| all.get(name));
        match (property, &schema.additional_properties) {
            (Some(property), _) => check(property, member, &at, findings),
            (None, Some(JSONSchemaPropsOrBool::Schema(values))) => {
                check(values, member, &at, findings);
            }
            (None, _) if schema.properties.is_some() => {
                let known = schema
                    .properties
                    .iter()
                    .flatten()
                    .map(|(name, _)| name.as_str());
                let hint = did_you_mean(name, known);
                findings.misshapen(&at, format!("unknown field \"{name}\"{hint}"));
            }
            (None, _) => {}
        }
    }
}

fn check_array(schema: &JSONSchemaProps, values: &[Value], path: &str, findings: &mut Findings) {
    let count = values.len();
    if let Some(min) = schema.min_items.filter(|min| falls_short(count, *min)) {
        findings.out_of_bounds(
            path,
            format!("expected at least {min} items, found {count}"),
        );
    }
    if let Some(max) = schema.max_items.filter(|max| exceeds(count, *max)) {
        findings.out_of_bounds(path, format!("expected at most {max} items, found {count}"));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        for (position, item) in values.iter().enumerate() {
            check(items, item, &format!("{path}[{position}]"), findings);
        }
    }
}

fn check_string(schema: &JSONSchemaProps, text: &str, path: &str, findings: &mut Findings) {
    let count = text.chars().count();
    if let Some(allowed) = &schema.enum_ {
        let allowed: Vec<&str> = allowed.iter().filter_map(|json| json.0.as_str()).collect();
        if !allowed.contains(&text) {
            let hint = did_you_mean(text, allowed.iter().copied());
            let allowed = allowed.join(", ");
            findings.out_of_bounds(path, format!("\"{text}\" is not one of {allowed}{hint}"));
        }
    }
    if let Some(min) = schema.min_length.filter(|min| falls_short(count, *min)) {
        findings.out_of_bounds(
            path,
            format!("expected at least {min} characters, found {count}"),
        );
    }
    if let Some(max) = schema.max_length.filter(|max| exceeds(count, *max)) {
        findings.out_of_bounds(
            path,
            format!("expected at most {max} characters, found {count}"),
        );
    }
    if let Some(pattern) = &schema.pattern {
        // A pattern that is not understood here is left to the API server.
        let matches = Regex::new(pattern).map_or(true, |regex| regex.is_match(text));
        if !matches {
            findings.out_of_bounds(path, format!("\"{text}\" does not match {pattern}"));
        }
    }
}

fn check_number(
    schema: &JSONSchemaProps,
    number: &serde_json::Number,
    path: &str,
    findings: &mut Findings,
) {
    let value = number.as_f64().unwrap_or(f64::NAN);
    if let Some(minimum) = schema.minimum.filter(|minimum| value < *minimum) {
        findings.out_of_bounds(path, format!("expected at least {minimum}, found {number}"));
    }
    if let Some(maximum) = schema.maximum.filter(|maximum| value > *maximum) {
        findings.out_of_bounds(path, format!("expected at most {maximum}, found {number}"));
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || number.as_f64().is_some_and(|value| value.fract() == 0.0)
}

fn exceeds(count: usize, max: i64) -> bool {
    i64::try_from(count).unwrap_or(i64::MAX) > max
}

fn falls_short(count: usize, min: i64) -> bool {
    i64::try_from(count).unwrap_or(i64::MAX) < min
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn noun(type_name: &str) -> &'static str {
    match type_name {
        "object" => "fields",
        "array" => "a list",
        "string" => "text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        _ => "a number",
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "fields",
    }
}
