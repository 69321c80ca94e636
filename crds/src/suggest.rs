//! Finding the word that was probably meant.

/// The candidate that is most like `word`, if one is like it at all.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let folded = fold(word);
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&folded, &fold(candidate)), candidate))
        .filter(|(likeness, _)| *likeness >= 0.75)
        // The first of equals, so that the answer does not depend on anything else.
        .fold(None, |best: Option<(f64, &str)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        })
        .map(|(_, candidate)| candidate)
}

/// `; did you mean "…"?`, or nothing.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    match nearest(word, candidates) {
        Some(candidate) => format!("; did you mean \"{candidate}\"?"),
        None => String::new(),
    }
}

/// Case and separators are what people mix up first: `source_prefix`, `sourcePrefix`.
fn fold(word: &str) -> String {
    word.chars()
        .filter(|character| !matches!(character, '_' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let fields = ["mainPrefix", "sidecarPrefix", "keyColumn"];
        assert_eq!(nearest("main_prefix", fields), Some("mainPrefix"));
        assert_eq!(nearest("keyColum", fields), Some("keyColumn"));
        assert_eq!(nearest("colour", fields), None);
    }
}
