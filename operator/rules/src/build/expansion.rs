//! The kubelet expands `$(NAME)` in arguments and variables, and takes `$$` for `$`. Nothing that
//! the operator writes there means that: a prefix may have either in its name, and
//! `$(AWS_SECRET_ACCESS_KEY)` would bring the secret into file names and logs.

use k8s_openapi::api::core::v1::Container;

/// Writes all texts of a container so that they arrive as they are.
pub(super) fn prevent(container: &mut Container) {
    let arguments = container.args.iter_mut().flatten();
    let variables = container.env.iter_mut().flatten();
    let values = variables.filter_map(|variable| variable.value.as_mut());
    for text in arguments.chain(values) {
        *text = text.replace('$', "$$");
    }
}
