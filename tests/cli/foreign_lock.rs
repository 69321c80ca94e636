//! The writer lock of somebody on another machine.

use std::path::Path;

/// A time so many seconds from now, as locks have it.
pub fn from_now(seconds: i64) -> String {
    let time = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
    time.format(&time::format_description::well_known::Rfc3339)
        .expect("a time")
}

/// Leaves one in an output folder, with these times and this epoch.
pub fn lay(folder: &Path, renewed: &str, expires: &str, epoch: u64) {
    let lock = serde_json::json!({
        "version": 1,
        "state": "held",
        "holder": {"name": "shard-worker", "instance": "0123", "host": "another-machine", "pid": 4711},
        "run": "20250601-101500-k3f7qa",
        "digest": "00",
        "epoch": epoch,
        "acquired_at": renewed,
        "renewed_at": renewed,
        "expires_at": expires,
    });
    let folder = folder.join("_sidecar");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("writer.json"), lock.to_string()).expect("write");
}
