//! What an error of the API server says to people.

/// The server's own sentence; of an error without an answer, the client's.
pub fn api_words(error: &kube::Error) -> String {
    match error {
        // The client's words have the answer's whole structure in them.
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("{} {}", status.code, status.reason),
        other => other.to_string(),
    }
}
