//! What a lock on a folder is worth on this file system.
//!
//! A new file appears by a rename, or a second name, that replaces nothing; a file is replaced
//! under a lock (`flock`) on its folder. On a disk of this machine both hold whatever happens. A
//! network file system may refuse the lock, which is told before anything else is written; or it
//! may grant it to each machine by itself, which nobody can find out from one of them.

use std::fs;
use std::path::Path;

use rustix::fs::statfs;

use super::Root;
use super::publish::lock;
use crate::error::{Error, Result};

/// File systems that several machines may have mounted, by their magic numbers (statfs(2)).
const NETWORK: [(u64, &str); 14] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x5346_414f, "AFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x7375_7245, "Coda"),
];

/// Refuses a file system that can't lock the folder of `key`, and says what a lock is worth on
/// one that other machines may write, too.
pub(super) fn prove(root: &Root, key: &str) -> Result<()> {
    let path = root.path_of(key);
    let folder = path.parent().unwrap_or(&root.path);
    if let Err(error) = lock(folder) {
        let _ = fs::remove_file(&path);
        return Err(refusal(root, key, &error));
    }
    if let Some(name) = network_of(folder) {
        let uri = &root.uri;
        tracing::warn!(
            "{uri} is on a network file system ({name}): its lock keeps out other runs of this machine, and those of other machines only if the file system shares locks on folders (flock); otherwise let one machine at a time write there"
        );
    }
    Ok(())
}

fn refusal(root: &Root, key: &str, error: &std::io::Error) -> Error {
    Error::invalid(
        root.uri_of(key),
        format!(
            "this file system can't lock a folder ({error}), so that nothing would keep two \
             writers apart: write to a disk of this machine, or to s3://"
        ),
    )
}

fn network_of(folder: &Path) -> Option<&'static str> {
    let magic = statfs(folder).ok()?.f_type;
    name_of(u64::try_from(magic).ok()?)
}

/// The network file system with this magic number, of which 32 bits count.
fn name_of(magic: u64) -> Option<&'static str> {
    let known = NETWORK
        .iter()
        .find(|(number, _)| *number == magic & 0xffff_ffff);
    known.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known() {
        for (magic, name) in [
            (0x6969, Some("NFS")),
            (0xffff_ffff_fe53_4d42, Some("SMB")),
            (0x6573_5546, Some("FUSE")),
            (0xef53, None),
            (0x0102_1994, None),
            (0x794c_7630, None),
            (0x5846_5342, None),
        ] {
            assert_eq!(name_of(magic), name, "{magic:x}");
        }
    }
}
