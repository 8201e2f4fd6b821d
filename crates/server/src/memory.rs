//! The memory that this process may use.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the memory of the machine in bytes, or the memory limit of the control group of this
/// process if that limit is lower. Returns 1 GiB if neither can be read.
pub(crate) fn available() -> usize {
    available_in(Path::new("/"))
}

fn available_in(root: &Path) -> usize {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok();
    let machine = machine.and_then(|text| total_of(&text));
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits_of(root, line));
    let bytes = machine.into_iter().chain(limits).min().unwrap_or(1 << 30);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns the total memory in bytes from the text of `/proc/meminfo` (proc(5)).
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns, in bytes, the memory limits of the control group in a line of `/proc/self/cgroup`, and
/// of the groups above this group.
/// cgroups(7): "hierarchy-ID:controller-list:cgroup-path"; the hierarchy of version 2 has no list.
fn limits_of(root: &Path, line: &str) -> Vec<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (mount, file) = if controllers.is_empty() {
        (root.join("sys/fs/cgroup"), "memory.max")
    } else if controllers.split(',').any(|name| name == "memory") {
        (root.join("sys/fs/cgroup/memory"), "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let group: PathBuf = group.trim_start_matches('/').into();
    let folders = group.ancestors().map(|above| mount.join(above).join(file));
    // "max" is not a number, so it is skipped. In a container, the path may be that of the host.
    // The limit is then in the root folder.
    folders.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:        2048000 kB\nMemFree:          123456 kB\n";

    /// Returns the available memory of a machine with these files.
    fn with(files: &[(&str, &str)]) -> usize {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        available_in(root.path())
    }

    #[test]
    fn the_memory_is_that_of_the_machine_without_a_limit() {
        assert_eq!(with(&[("proc/meminfo", MEMINFO)]), 2_097_152_000);
        assert_eq!(with(&[]), 1 << 30);
        assert_eq!(with(&[("proc/meminfo", "MemTotal: much\n")]), 1 << 30);
        let max = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/user.slice\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
        ];
        assert_eq!(with(&max), 2_097_152_000);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available() > 1 << 20);
    }

    #[test]
    fn the_lowest_limit_of_a_group_and_its_parents_counts() {
        let mut files = vec![
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/system.slice/tidegate.service\n"),
            ("sys/fs/cgroup/system.slice/tidegate.service/memory.max", "536870912\n"),
        ];
        assert_eq!(with(&files), 512 << 20);
        files.push(("sys/fs/cgroup/system.slice/memory.max", "268435456\n"));
        assert_eq!(with(&files), 256 << 20);
        // In a container, the root folder has the limit of the container's group.
        files.push(("sys/fs/cgroup/memory.max", "134217728\n"));
        assert_eq!(with(&files), 128 << 20);
    }

    #[test]
    fn groups_of_version_1_are_read_too() {
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "12:cpu,cpuacct:/a\n5:hugetlb,memory:/docker/1\n0::/a\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "1073741824\n"),
            // This group has the same path, but the first line of `cgroup` is not about memory.
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n"),
            // Without a limit, version 1 of control groups has this value.
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(with(&files), 1 << 30);
    }
}
