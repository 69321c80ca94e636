//! From YAML text to the JSON that an API server would be sent.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use serde_yaml::{Mapping, Value as Yaml};

use super::{ManifestError, Violation};

/// Reads a file with one YAML document.
pub(crate) fn read(path: &Path) -> Result<Yaml, ManifestError> {
    let text = std::fs::read_to_string(path).map_err(|source| ManifestError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text, path)
}

/// Parses text with one YAML document; anchors and merge keys are resolved.
pub(crate) fn parse(text: &str, origin: &Path) -> Result<Yaml, ManifestError> {
    let syntax = |error: serde_yaml::Error| ManifestError::Syntax {
        path: origin.to_owned(),
        message: error.to_string(),
    };
    // As editors on Windows begin a file.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let document = Yaml::deserialize(document).map_err(syntax)?;
        if !document.is_null() {
            documents.push(document);
        }
    }
    match (documents.pop(), documents.len()) {
        (Some(mut document), 0) => {
            document.apply_merge().map_err(syntax)?;
            Ok(document)
        }
        (None, _) => Err(whole(origin, "the file is empty; expected a SidecarJob")),
        (Some(_), others) => Err(whole(
            origin,
            &format!(
                "expected one document, found {}; put each SidecarJob in a file of its own",
                others + 1
            ),
        )),
    }
}

fn whole(origin: &Path, message: &str) -> ManifestError {
    ManifestError::invalid(origin, vec![Violation::new("", message)])
}

/// The JSON of a `SidecarJob` document. Struct types that are written as maps become
/// lists here, while the order of their fields is still known.
pub(crate) fn to_json(document: &Yaml, origin: &Path) -> Result<Json, ManifestError> {
    let mut document = document.clone();
    let schemas = document
        .get_mut("spec")
        .and_then(|spec| spec.get_mut("schemas"))
        .and_then(Yaml::as_mapping_mut);
    if let Some(schemas) = schemas {
        for (_, fields) in schemas.iter_mut() {
            if let Yaml::Mapping(map) = fields {
                *fields = fields_as_list(map);
            }
        }
    }
    value_to_json(&document, "")
        .map_err(|violation| ManifestError::invalid(origin, vec![violation]))
}

/// `{a: int64}` as `[{name: a, type: int64}]`.
fn fields_as_list(map: &Mapping) -> Yaml {
    let field = |(name, type_expression): (&Yaml, &Yaml)| {
        let mut field = Mapping::new();
        field.insert("name".into(), name.clone());
        field.insert("type".into(), type_expression.clone());
        Yaml::Mapping(field)
    };
    Yaml::Sequence(map.iter().map(field).collect())
}

/// A YAML value as JSON.
pub(crate) fn value_to_json(value: &Yaml, path: &str) -> Result<Json, Violation> {
    let problem = |message: &str| Err(Violation::new(path, message));
    match value {
        Yaml::Null => Ok(Json::Null),
        Yaml::Bool(value) => Ok(Json::Bool(*value)),
        Yaml::String(text) => Ok(Json::String(text.clone())),
        Yaml::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => Ok(value.into()),
            (None, Some(value), _) => Ok(value.into()),
            (None, None, Some(value)) if value.is_finite() => Ok(value.into()),
            _ => problem("expected a number that is neither infinite nor NaN"),
        },
        Yaml::Sequence(values) => values
            .iter()
            .enumerate()
            .map(|(position, value)| value_to_json(value, &format!("{path}[{position}]")))
            .collect(),
        Yaml::Mapping(map) => {
            let mut members = Map::new();
            for (name, member) in map {
                let Yaml::String(name) = name else {
                    return problem("a name is not text; put it in quotes");
                };
                let separator = if path.is_empty() { "" } else { "." };
                let at = format!("{path}{separator}{name}");
                members.insert(name.clone(), value_to_json(member, &at)?);
            }
            Ok(Json::Object(members))
        }
        Yaml::Tagged(_) => problem("YAML tags (!name) have no meaning here; remove it"),
    }
}
