//! Every rule that looks at more than one value, as CEL.
//!
//! The API server evaluates them, and [`crate::manifest::load`] evaluates the same text
//! with the same messages. A message says what was expected and how to get there, and
//! never depends on the values, so that both places print the same words.

use kube::core::Rule;

use crate::types::BUILT_IN_NAMES;

/// A rule from its expression and message. It has no `reason`: with one such as
/// `FieldValueDuplicate` the API server leaves the message out of its answer.
fn rule(expression: impl Into<String>, message: &str) -> Rule {
    Rule::new(expression).message(message)
}

/// The expression `text` with a final `/`.
fn with_slash(text: &str) -> String {
    format!("({text}.endsWith('/') ? {text} : {text} + '/')")
}

/// An expression that is true if neither of two folders is inside the other.
fn apart(left: &str, right: &str) -> String {
    let (left, right) = (with_slash(left), with_slash(right));
    format!("!{left}.startsWith({right}) && !{right}.startsWith({left})")
}

/// A string names a place in object storage or in a file system.
pub fn is_a_prefix() -> Rule {
    rule(
        r"self.startsWith('s3://') ? self.matches('^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$') && !self.matches('/[.][.]?(/|$)|[^:]//') : self.startsWith('file:///') || !self.contains('://')",
        "expected s3://BUCKET/PATH, file:///PATH or a path on this machine; an S3 path has no empty, '.' or '..' part",
    )
}

/// The endpoint is a URL of a server, without a path.
pub fn endpoint_is_a_url() -> Rule {
    rule(
        r"self.matches('^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?$')",
        "expected the URL of a server without a path, such as https://s3.example.com:9000; the bucket belongs into the prefixes",
    )
}

/// Names in a list differ.
pub fn names_are_unique() -> Rule {
    rule(
        "self.all(a, self.exists_one(b, a == b))",
        "a name is listed twice; list each one once",
    )
}

/// Names of columns differ by more than case.
pub fn column_names_are_unique() -> Rule {
    rule(
        "self.all(a, self.exists_one(b, a.name.lowerAscii() == b.name.lowerAscii()))",
        "two columns have the same name, or names that differ only in case, which many readers do not tell apart; rename one",
    )
}

/// Names of fields of a struct differ by more than case.
pub fn field_names_are_unique() -> Rule {
    rule(
        "self.all(a, self.exists_one(b, a.name.lowerAscii() == b.name.lowerAscii()))",
        "two fields have the same name, or names that differ only in case, which many readers do not tell apart; rename one",
    )
}

/// Variables of the environment differ.
pub fn environment_is_unique() -> Rule {
    rule(
        "self.all(a, self.exists_one(b, a.name == b.name))",
        "a variable is set twice; set each one once",
    )
}

/// Variables that only the operator sets, which say where and as whom a worker reaches its
/// prefixes, are not given by the job.
pub fn environment_is_not_the_operators() -> Rule {
    rule(
        "self.all(a, !a.name.startsWith('AWS_') && !a.name.startsWith('SIDECARJOB_'))",
        "a variable whose name begins with AWS_ or SIDECARJOB_ is the operator's to set; say how storage is reached in spec.storage, and as whom in spec.storage.credentialsSecretRef or by the service account",
    )
}

/// No marker is listed twice.
pub fn markers_are_unique() -> Rule {
    rule(
        "self.all(a, self.exists_one(b, a.contains == b.contains))",
        "a marker is listed twice, and only its first entry could ever match; remove the other",
    )
}

/// A source inference has a marker or a default.
pub fn sources_say_something() -> Rule {
    rule(
        "has(self.default) || (has(self.markers) && self.markers.size() > 0)",
        "sources needs markers or a default; leave sources out if rows have no source",
    )
}

/// The image column is not the key column.
pub fn image_is_not_the_key() -> Rule {
    rule(
        "!has(self.imageColumn) || self.imageColumn.lowerAscii() != self.keyColumn.lowerAscii()",
        "imageColumn and keyColumn are the same column; name the column that holds the encoded images, or leave imageColumn out",
    )
}

/// The present sidecar is neither inside nor around main.
pub fn sidecar_apart_from_main() -> Rule {
    rule(
        format!(
            "!has(self.sidecarPrefix) || ({})",
            apart("self.sidecarPrefix", "self.mainPrefix")
        ),
        "sidecarPrefix and mainPrefix are inside one another, so the shards of one would be taken for shards of the other; keep them in separate folders",
    )
}

/// A step has exactly one operation.
pub fn one_operation() -> Rule {
    rule(
        "[has(self.extractScaffold), has(self.joinFromParquet), has(self.mergeFromSidecar), has(self.recaptionMerge), has(self.computeFilters)].filter(x, x).size() == 1",
        "a step has exactly one of extractScaffold, joinFromParquet, mergeFromSidecar, recaptionMerge and computeFilters; write one list item for each operation, and {} after an operation without settings",
    )
}

/// Built-in types keep their meaning.
pub fn built_in_types_are_not_redefined() -> Rule {
    let names: Vec<String> = BUILT_IN_NAMES
        .iter()
        .map(|name| format!("'{name}'"))
        .collect();
    rule(
        format!("self.all(name, !(name in [{}]))", names.join(", ")),
        "a built-in type can't be redefined; give your type another name, such as one with a higher version",
    )
}

/// Declared columns are neither the key nor the image column.
pub fn columns_are_not_key_or_image() -> Rule {
    rule(
        "!has(self.columns) || self.columns.all(c, c.name.lowerAscii() != self.dataset.keyColumn.lowerAscii() && (!has(self.dataset.imageColumn) || c.name.lowerAscii() != self.dataset.imageColumn.lowerAscii()))",
        "the key and image columns always come from main and can't be declared in columns; remove the entry or rename it",
    )
}

/// Filters have an image to look at.
pub fn filters_need_the_image() -> Rule {
    rule(
        "has(self.dataset.imageColumn) || !self.pipeline.exists(s, has(s.computeFilters))",
        "computeFilters needs the images; name their column in dataset.imageColumn",
    )
}

/// Joined columns have a declared type.
pub fn joined_columns_are_declared() -> Rule {
    rule(
        "[has(self.columns) ? self.columns.map(c, c.name) : []].all(names, self.pipeline.all(s, !has(s.joinFromParquet) || s.joinFromParquet.columns.all(n, n in names)))",
        "joinFromParquet brings a column that spec.columns does not declare; add it there with its type",
    )
}

/// Output and main are apart.
pub fn output_apart_from_main() -> Rule {
    rule(
        format!(
            "!has(self.output) || !has(self.output.prefix) || ({})",
            apart("self.output.prefix", "self.dataset.mainPrefix")
        ),
        "output.prefix and dataset.mainPrefix are inside one another, so a run would read what it writes; choose an output folder beside the main one",
    )
}

/// Output is the present sidecar itself, or apart from it.
pub fn output_apart_from_sidecar() -> Rule {
    let (output, sidecar) = ("self.output.prefix", "self.dataset.sidecarPrefix");
    rule(
        format!(
            "!has(self.output) || !has(self.output.prefix) || !has(self.dataset.sidecarPrefix) || {} == {} || ({})",
            with_slash(output),
            with_slash(sidecar),
            apart(output, sidecar)
        ),
        "output.prefix is inside dataset.sidecarPrefix, or around it; choose a folder beside it, or the same folder to write there on purpose",
    )
}

/// A rule that the output is apart from what one operation reads.
fn output_apart_from(operation: &str, field: &str, message: &str) -> Rule {
    rule(
        format!(
            "!has(self.output) || !has(self.output.prefix) || self.pipeline.all(s, !has(s.{operation}) || ({}))",
            apart("self.output.prefix", &format!("s.{operation}.{field}"))
        ),
        message,
    )
}

/// Output and indexes are apart.
pub fn output_apart_from_join_sources() -> Rule {
    output_apart_from(
        "joinFromParquet",
        "source",
        "output.prefix and the source of a joinFromParquet are inside one another, so a run would read what it writes; choose another output folder",
    )
}

/// Output and sibling sidecars are apart.
pub fn output_apart_from_merge_sources() -> Rule {
    output_apart_from(
        "mergeFromSidecar",
        "sourcePrefix",
        "output.prefix and the sourcePrefix of a mergeFromSidecar are inside one another, so a run would read what it writes; choose another output folder",
    )
}

/// Output and texts are apart.
pub fn output_apart_from_recaption_sources() -> Rule {
    output_apart_from(
        "recaptionMerge",
        "source",
        "output.prefix and the source of a recaptionMerge are inside one another, so a run would read what it writes; choose another output folder",
    )
}
