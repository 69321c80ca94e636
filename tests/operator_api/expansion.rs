//! What the kubelet makes of `$(NAME)` and `$$` in arguments and variables, by its rules
//! (`third_party/forked/golang/expansion` of Kubernetes).

use std::collections::BTreeMap;

/// `text` with the values of `variables` in it. A name that isn't among them stays as it is
/// written; `$$` is a `$` that begins nothing.
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest
            .strip_prefix('(')
            .and_then(|inside| inside.split_once(')'))
        {
            match variables.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded + rest
}

#[test]
fn texts_are_expanded_as_the_kubelet_does() {
    let variables = BTreeMap::from([("SECRET".to_owned(), "s3cr$$t".to_owned())]);
    for (text, expected) in [
        ("plain", "plain"),
        ("a$(SECRET)b", "as3cr$$tb"),
        ("$$(SECRET)", "$(SECRET)"),
        ("$$$(SECRET)", "$s3cr$$t"),
        ("$$$$(SECRET)", "$$(SECRET)"),
        ("$(OTHER)$", "$(OTHER)$"),
        ("$(open", "$(open"),
        ("$a$$b$", "$a$b$"),
    ] {
        assert_eq!(expand(text, &variables), expected, "{text}");
    }
}
