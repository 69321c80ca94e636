//! Names of Jobs: legal for every legal name of a SidecarJob, and never used twice.

use sha2::{Digest, Sha256};

/// Most characters of a Job's name: that of a pod has `-<index>-<5 random>` behind it and is also
/// the host name, which has 63 at most; an index has five digits at most.
pub const JOB_NAME_LENGTH: usize = 63 - "-99999-abcde".len();

/// Hexadecimal digits of the hash in a name.
const HASH_LENGTH: usize = 10;

/// The name of the Job of an attempt at a batch: as much of the object's name as fits, and a hash
/// of what tells it from all others. It never comes again, not for another object of the same
/// name either.
pub fn job_name(object: &str, uid: &str, run: &str, batch: u32, attempt: u32) -> String {
    let hash = Sha256::digest(format!("{uid}\n{run}\n{batch}\n{attempt}").as_bytes());
    let mut suffix: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    suffix.truncate(HASH_LENGTH);
    let room = JOB_NAME_LENGTH - HASH_LENGTH - 1;
    let short: String = object
        .chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .take(room)
        .collect();
    let short = short.trim_matches('-');
    if short.is_empty() {
        format!("job-{suffix}")
    } else {
        format!("{short}-{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_says_whose_it_is() {
        let name = job_name("photos-filters", "uid", "20250601-101500-k3f7qa", 3, 1);
        assert!(name.starts_with("photos-filters-"), "{name}");
        assert_eq!(name.len(), "photos-filters-".len() + 10);
    }

    #[test]
    fn every_attempt_has_its_own() {
        let mut names: Vec<String> = Vec::new();
        for uid in ["a", "b"] {
            for run in ["r1", "r2"] {
                for batch in 0..20 {
                    for attempt in 1..5 {
                        names.push(job_name("x", uid, run, batch, attempt));
                    }
                }
            }
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    proptest! {
        #[test]
        fn every_legal_name_gives_a_legal_one(
            object in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?){0,3}",
            batch: u32,
            attempt: u32,
        ) {
            let name = job_name(&object, "uid", "run", batch, attempt);
            let of_pod = format!("{name}-99999-abcde");
            prop_assert!(of_pod.len() <= 63);
            let is_legal =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            prop_assert!(name.bytes().all(is_legal));
            prop_assert!(name.starts_with(|first: char| first.is_ascii_alphanumeric()));
            prop_assert!(name.ends_with(|last: char| last.is_ascii_alphanumeric()));
        }
    }
}
