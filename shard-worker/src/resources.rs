//! How many threads and how much memory there are, in a container as on a laptop.

use std::fs;
use std::path::Path;

/// CPUs that may be used: the affinity mask, capped by the cgroup's quota.
pub fn threads() -> usize {
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    match cpu_quota(Path::new("/sys/fs/cgroup")) {
        Some(quota) => online.min((quota.ceil() as usize).max(1)),
        None => online,
    }
}

/// Memory to work with, in bytes: three quarters of the cgroup's limit or of what is free.
pub fn memory() -> u64 {
    let available = available_memory().unwrap_or(2 << 30);
    let limit = memory_limit(Path::new("/sys/fs/cgroup")).unwrap_or(u64::MAX);
    (available.min(limit) / 4 * 3).max(256 << 20)
}

/// CPUs per the quota of a cgroup, version 2 or 1.
fn cpu_quota(root: &Path) -> Option<f64> {
    if let Ok(text) = fs::read_to_string(root.join("cpu.max")) {
        let mut parts = text.split_whitespace();
        let quota: f64 = parts.next()?.parse().ok()?;
        let period: f64 = parts.next()?.parse().ok()?;
        return (period > 0.0).then_some(quota / period);
    }
    let read = |name: &str| {
        fs::read_to_string(root.join("cpu").join(name))
            .ok()?
            .trim()
            .parse::<f64>()
            .ok()
    };
    let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

fn memory_limit(root: &Path) -> Option<u64> {
    let parse = |path: &str| {
        fs::read_to_string(root.join(path))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    parse("memory.max").or_else(|| parse("memory/memory.limit_in_bytes"))
}

fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Parses `512MiB`, `4GiB`, `1.5G`, `800000000`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let split = text
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a size; expected e.g. 512MiB or 4GiB"))?;
    let factor: f64 = match unit.trim() {
        "" | "B" => 1.0,
        "K" | "KB" => 1e3,
        "M" | "MB" => 1e6,
        "G" | "GB" => 1e9,
        "T" | "TB" => 1e12,
        "Ki" | "KiB" => 1024.0,
        "Mi" | "MiB" => 1048576.0,
        "Gi" | "GiB" => 1073741824.0,
        "Ti" | "TiB" => 1099511627776.0,
        other => return Err(format!("{other:?} is not a unit; use MiB, GiB, MB or GB")),
    };
    let bytes = number * factor;
    if bytes < 64e6 {
        Err(format!(
            "{text} is too little to work with; give at least 64MiB"
        ))
    } else {
        Ok(bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_or_refused() {
        assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("1.5G"), Ok(1_500_000_000));
        assert_eq!(parse_bytes("800000000"), Ok(800_000_000));
        for bad in ["", "GiB", "4 parsecs", "1KiB", "-1GiB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quotas_of_both_cgroup_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(cpu_quota(folder.path()), None);
        fs::create_dir(folder.path().join("cpu")).unwrap();
        fs::write(folder.path().join("cpu/cpu.cfs_quota_us"), "150000\n").unwrap();
        fs::write(folder.path().join("cpu/cpu.cfs_period_us"), "100000\n").unwrap();
        assert_eq!(cpu_quota(folder.path()), Some(1.5));
        fs::write(folder.path().join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(cpu_quota(folder.path()), None);
        fs::write(folder.path().join("cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(cpu_quota(folder.path()), Some(0.5));
    }
}
