//! Names in snake case and in the manifest's cases.

/// `source_prefix` as `sourcePrefix`.
pub(super) fn camel_case(snake: &str) -> String {
    let mut parts = snake.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + &capitalised(part))
}

/// `prefer_sidecar` as `PreferSidecar`.
pub(super) fn pascal_case(snake: &str) -> String {
    snake.split('_').map(capitalised).collect()
}

/// `sourcePrefix` as `source_prefix`.
pub(super) fn snake_case(camel: &str) -> String {
    let mut text = String::with_capacity(camel.len() + 4);
    for character in camel.chars() {
        if character.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}

/// A legal name of a resource that is as much like `name` as it can be.
pub(super) fn resource_name(name: &str) -> String {
    let legal: String = name
        .chars()
        .map(|character| match character.to_ascii_lowercase() {
            kept if kept.is_ascii_lowercase() || kept.is_ascii_digit() => kept,
            _ => '-',
        })
        .take(253)
        .collect();
    match legal.trim_matches('-') {
        "" => "pipeline".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

fn capitalised(word: &str) -> String {
    let mut characters = word.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}
