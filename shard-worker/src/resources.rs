//! How many threads and how much memory there are, in a container as on a laptop.

use std::fs;

/// Where the control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// A larger limit is how version 1 writes that there is none.
const NO_LIMIT: u64 = 1 << 60;

/// CPUs that may be used: the affinity mask, capped by the quota of the control groups.
pub fn threads() -> usize {
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    match own_limits().cpus {
        Some(quota) => online.min((quota.ceil() as usize).max(1)),
        None => online,
    }
}

/// Memory to work with, in bytes: three quarters of the control groups' limit or of what is free.
pub fn memory() -> u64 {
    let available = available_memory().unwrap_or(2 << 30);
    let limit = own_limits().memory.unwrap_or(u64::MAX);
    (available.min(limit) / 4 * 3).max(256 << 20)
}

fn own_limits() -> Limits {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits(&membership, |path| fs::read_to_string(path).ok())
}

/// What control groups leave a process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Limits {
    /// CPUs.
    cpus: Option<f64>,
    /// Bytes.
    memory: Option<u64>,
}

/// The smallest limits of a process's control groups and of all that those are in, of either
/// version. `membership` is what `/proc/self/cgroup` says; `read` gives a file's text.
///
/// A container in a namespace of its own is in `/`, and sees its own limits there; a service of
/// systemd, or a container that shares the machine's namespace, is further down. What cannot be
/// seen is passed over.
fn limits(membership: &str, read: impl Fn(&str) -> Option<String>) -> Limits {
    let mut found = Limits::default();
    // The groups of `/` count whatever the process says, so that an unreadable file hides none.
    let root = ["0::/", "0:memory:/", "0:cpu:/"];
    for line in membership.lines().chain(root) {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let has = |name: &str| controllers.split(',').any(|controller| controller == name);
        for group in upward(path) {
            let number = |file: &str| read(&format!("{CGROUPS}{file}"))?.trim().parse().ok();
            if controllers.is_empty() {
                let quota = read(&format!("{CGROUPS}{group}/cpu.max"));
                found.cap_cpus(quota.as_deref().and_then(quota_of));
                found.cap_memory(number(&format!("{group}/memory.max")));
            }
            if has("memory") {
                let limit = number(&format!("/memory{group}/memory.limit_in_bytes"));
                found.cap_memory(limit);
            }
            if has("cpu") {
                let read = |name| read(&format!("{CGROUPS}/cpu{group}/cpu.cfs_{name}_us"));
                let text = read("quota").zip(read("period"));
                let text = text.map(|(quota, period)| format!("{quota} {period}"));
                found.cap_cpus(text.as_deref().and_then(quota_of));
            }
        }
    }
    found
}

impl Limits {
    fn cap_cpus(&mut self, cpus: Option<f64>) {
        self.cpus = match (self.cpus, cpus) {
            (Some(before), Some(cpus)) => Some(before.min(cpus)),
            (before, cpus) => before.or(cpus),
        };
    }

    fn cap_memory(&mut self, bytes: Option<u64>) {
        let bytes = bytes.filter(|&bytes| bytes < NO_LIMIT);
        self.memory = match (self.memory, bytes) {
            (Some(before), Some(bytes)) => Some(before.min(bytes)),
            (before, bytes) => before.or(bytes),
        };
    }
}

/// A group and all that it is in: `/a/b`, `/a` and nothing. A group outside of the namespace
/// (`/../a`) has none that can be seen but the last.
fn upward(path: &str) -> impl Iterator<Item = &str> {
    let path = path.trim_end_matches('/');
    let visible = if path.split('/').any(|part| part == "..") {
        ""
    } else {
        path
    };
    std::iter::successors(Some(visible), |group| {
        group.rfind('/').map(|slash| &group[..slash])
    })
}

/// CPUs of a quota and its period in microseconds; none if there is no quota (`max`, `-1`).
fn quota_of(text: &str) -> Option<f64> {
    let mut parts = text.split_whitespace();
    let quota: f64 = parts.next()?.parse().ok()?;
    let period: f64 = parts.next()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
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
    fn the_smallest_limit_on_the_way_up_counts() {
        let unified = |path: &str, file: &str, text: &str| {
            (format!("/sys/fs/cgroup{path}/{file}"), text.to_owned())
        };
        let old = |controller: &str, path: &str, file: &str, text: &str| {
            let path = format!("/sys/fs/cgroup/{controller}{path}/{file}");
            (path, text.to_owned())
        };
        let limit = |cpus: Option<f64>, mebibytes: Option<u64>| Limits {
            cpus,
            memory: mebibytes.map(|mebibytes| mebibytes << 20),
        };
        let (half, one_and_a_half) = ("50000 100000\n", "150000 100000\n");
        let (mib_100, mib_300) = ("104857600\n", "314572800\n");
        let table = [
            ("nothing is mounted", "0::/", vec![], limit(None, None)),
            (
                "no limits",
                "0::/user.slice/a.scope\n",
                vec![
                    unified("/user.slice/a.scope", "memory.max", "max\n"),
                    unified("/user.slice/a.scope", "cpu.max", "max 100000\n"),
                ],
                limit(None, None),
            ),
            (
                "a container in its own namespace",
                "0::/\n",
                vec![
                    unified("", "memory.max", mib_100),
                    unified("", "cpu.max", half),
                ],
                limit(Some(0.5), Some(100)),
            ),
            (
                "a service of systemd",
                "0::/system.slice/a.service\n",
                vec![
                    unified("/system.slice/a.service", "memory.max", mib_100),
                    unified("/system.slice/a.service", "cpu.max", one_and_a_half),
                ],
                limit(Some(1.5), Some(100)),
            ),
            (
                "its slice has less",
                "0::/system.slice/a.service\n",
                vec![
                    unified("/system.slice/a.service", "memory.max", mib_300),
                    unified("/system.slice", "memory.max", mib_100),
                    unified("/system.slice", "cpu.max", half),
                ],
                limit(Some(0.5), Some(100)),
            ),
            (
                "a group that is outside of the namespace",
                "0::/../other/a\n",
                vec![
                    unified("", "memory.max", mib_300),
                    unified("/../other/a", "memory.max", mib_100),
                ],
                limit(None, Some(300)),
            ),
            (
                "version 1, nested",
                "7:memory:/pods/a\n4:cpu,cpuacct:/pods/a\n1:name=systemd:/pods/a\n",
                vec![
                    old("memory", "/pods/a", "memory.limit_in_bytes", mib_300),
                    old("memory", "/pods", "memory.limit_in_bytes", mib_100),
                    old(
                        "memory",
                        "",
                        "memory.limit_in_bytes",
                        "9223372036854771712\n",
                    ),
                    old("cpu", "/pods/a", "cpu.cfs_quota_us", "150000\n"),
                    old("cpu", "/pods/a", "cpu.cfs_period_us", "100000\n"),
                    old("cpu", "", "cpu.cfs_quota_us", "-1\n"),
                    old("cpu", "", "cpu.cfs_period_us", "100000\n"),
                ],
                limit(Some(1.5), Some(100)),
            ),
            (
                "version 1, the container's group mounted as the root",
                "7:memory:/docker/0123\n",
                vec![old("memory", "", "memory.limit_in_bytes", mib_300)],
                limit(None, Some(300)),
            ),
            (
                "both versions at once",
                "7:memory:/a\n0::/b\n",
                vec![
                    old("memory", "/a", "memory.limit_in_bytes", mib_300),
                    unified("/b", "memory.max", mib_100),
                ],
                limit(None, Some(100)),
            ),
            (
                "no membership to be read",
                "",
                vec![unified("", "memory.max", mib_100)],
                limit(None, Some(100)),
            ),
        ];
        for (about, membership, files, expected) in table {
            let files: std::collections::HashMap<String, String> = files.into_iter().collect();
            let found = limits(membership, |path| files.get(path).cloned());
            assert_eq!(found, expected, "{about}");
        }
    }
}
