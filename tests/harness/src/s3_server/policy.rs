//! Who may do what in a bucket, as a bucket policy says it.

use serde_json::{Value, json};

/// What a user may read and write in a bucket, beside nothing else.
#[derive(Debug, Clone, Copy)]
pub struct Grant<'a> {
    /// The user's access key.
    pub user: &'a str,
    /// Prefixes whose objects the user may list and read.
    pub read: &'a [&'a str],
    /// Prefixes whose objects the user may list, read, write and delete.
    pub write: &'a [&'a str],
}

const READ: &[&str] = &["s3:GetObject"];
const WRITE: &[&str] = &[
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
];

/// The policy of a bucket in which these grants are all that there is.
pub(super) fn of(bucket: &str, grants: &[Grant<'_>]) -> Value {
    let mut statements = Vec::new();
    for grant in grants {
        for (prefixes, actions) in [(grant.read, READ), (grant.write, WRITE)] {
            if prefixes.is_empty() {
                continue;
            }
            let objects: Vec<String> = prefixes
                .iter()
                .map(|prefix| format!("arn:aws:s3:::{bucket}/{prefix}*"))
                .collect();
            let listed: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}*")).collect();
            statements.push(json!({
                "Effect": "Allow",
                "Principal": {"AWS": [grant.user]},
                "Action": actions,
                "Resource": objects,
            }));
            statements.push(json!({
                "Effect": "Allow",
                "Principal": {"AWS": [grant.user]},
                "Action": ["s3:ListBucket"],
                "Resource": [format!("arn:aws:s3:::{bucket}")],
                "Condition": {"StringLike": {"s3:prefix": listed}},
            }));
        }
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

/// The policies of identities as that of the bucket which they are about.
pub(super) fn of_identities(policies: &[(&str, Value)]) -> Value {
    let mut statements = Vec::new();
    for (user, policy) in policies {
        for statement in policy["Statement"].as_array().into_iter().flatten() {
            let mut statement = statement.clone();
            statement["Principal"] = json!({"AWS": [user]});
            statements.push(statement);
        }
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}
