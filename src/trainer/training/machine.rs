//! Resources of the machine and of this process. No number of a run depends on them.

use crate::base::files;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A field of `/proc/self/status`, such as `VmHWM` (peak) or `VmRSS` (now).
pub fn process_bytes(field: &str) -> Option<u64> {
    kilobytes("/proc/self/status", field)
}

/// The system's available memory or the rest of the control group, whichever is less.
pub fn available_memory_bytes() -> Option<u64> {
    kilobytes("/proc/meminfo", "MemAvailable").into_iter().chain(control_group_bytes()).min()
}

/// Free memory by the driver's tool; `None` without tool or card.
pub fn card_memory_bytes(card: u32) -> Option<u64> {
    let asked = [
        "--query-gpu=memory.free".to_string(),
        "--format=csv,noheader,nounits".to_string(),
        format!("--id={card}"),
    ];
    let answer = Command::new("nvidia-smi").args(asked).output().ok()?;
    let mebibytes = String::from_utf8(answer.stdout).ok()?.trim().parse::<u64>().ok()?;
    answer.status.success().then(|| mebibytes.saturating_mul(1 << 20))
}

fn kilobytes(path: &str, field: &str) -> Option<u64> {
    let text = files::kernel_text(Path::new(path)).ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()?.saturating_mul(1024))
}

/// Version 2 or 1.
fn control_group_bytes() -> Option<u64> {
    let own = files::kernel_text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mut groups = vec![
        (PathBuf::from("/sys/fs/cgroup"), ["memory.max", "memory.current"]),
        (PathBuf::from("/sys/fs/cgroup/memory"), LEGACY),
    ];
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next(), parts.next(), parts.next());
        let inside = Path::new(path.unwrap_or_default().trim_start_matches('/'));
        let (root, names) = match controllers {
            Some("") => groups[0].clone(),
            Some(names) if names.split(',').any(|name| name == "memory") => groups[1].clone(),
            _ => continue,
        };
        // A limit may be that of any group above.
        groups.extend(inside.ancestors().map(|group| (root.join(group), names)));
    }
    groups.iter().filter_map(|(folder, names)| left_in(folder, names)).min()
}

const LEGACY: [&str; 2] = ["memory.limit_in_bytes", "memory.usage_in_bytes"];

/// Limit less usage; file pages that can be dropped do not count as used.
fn left_in(folder: &Path, [limit, usage]: &[&str; 2]) -> Option<u64> {
    let number =
        |name: &str| files::kernel_text(&folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let statistics = files::kernel_text(&folder.join("memory.stat")).unwrap_or_default();
    let droppable = statistics
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok())
        .unwrap_or(0);
    Some(number(limit)?.saturating_sub(number(usage)?.saturating_sub(droppable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_peak_at_or_above_its_present_memory() {
        let (now, peak) = (process_bytes("VmRSS").unwrap(), process_bytes("VmHWM").unwrap());
        assert!(now > 1 << 20 && peak > 1 << 20, "{now} {peak}");
        assert_eq!(process_bytes("NoSuchField"), None);
        assert!(available_memory_bytes().unwrap() > 1 << 20);
    }

    #[test]
    fn a_control_group_leaves_its_limit_less_what_cannot_be_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
        };
        let names = ["memory.max", "memory.current"];
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        assert_eq!(left_in(folder.path(), &names), None, "no limit");
        write("memory.max", "1000\n");
        assert_eq!(left_in(folder.path(), &names), Some(300));
        write("memory.stat", "anon 1\ninactive_file 200\n");
        assert_eq!(left_in(folder.path(), &names), Some(500));
    }
}
