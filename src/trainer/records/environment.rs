//! Facts about machine and build for readers, outside every comparison.

use crate::base::files;
use crate::records::Environment;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The folder of linking; in a wheel, which uses its run path, a name without a place.
const LIBTORCH_LIB: &str = env!("DAPO_LIBTORCH_LIB");

/// The lock file of this binary.
const CARGO_LOCK: &[u8] = include_bytes!("../Cargo.lock");

/// They decide kernels and threads of this crate, LibTorch, MKL, oneDNN and OpenMP.
pub const PINS: [&str; 10] = [
    "ATEN_CPU_CAPABILITY",
    "DAPO_INSTRUCTIONS",
    "MKL_CBWR",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_NUM_THREADS",
    "OMP_DYNAMIC",
    "OMP_NUM_THREADS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
];

/// The loaded LibTorch is that of the run path, unless `LD_LIBRARY_PATH` names another.
pub fn libtorch_folder() -> PathBuf {
    let maps = files::kernel_text(Path::new("/proc/self/maps")).unwrap_or_default();
    let loaded = maps.lines().find_map(|line| {
        let place = line.find('/')?;
        line[place..].strip_suffix("/libtorch_cpu.so").map(PathBuf::from)
    });
    loaded.unwrap_or_else(|| PathBuf::from(LIBTORCH_LIB))
}

/// Since 1970-01-01 UTC, only for `sessions.jsonl` and `timings.jsonl`: no number of a run may use it.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_millis() as u64
}

/// UTC, such as `2026-11-20T08:15:30.250Z`; `None` beyond the year 9999.
pub fn rfc3339(milliseconds: u64) -> Option<String> {
    const LAST: u64 = 253_402_300_799_999;
    let time = UNIX_EPOCH + Duration::from_millis(milliseconds.min(LAST));
    (milliseconds <= LAST).then(|| humantime::format_rfc3339_millis(time).to_string())
}

/// The other facts may change bits of fast arithmetic.
pub const CHANGES_NO_BIT: [&str; 3] = ["git_dirty", "kernel", "memory"];

/// CPU, memory, kernel, threads, LibTorch, target, and the working folder's commit, where known.
pub fn describe(threads: u64) -> Environment {
    let mut facts = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_string(), value);
        }
    };
    put("harness", Some(env!("CARGO_PKG_VERSION").to_string()));
    let lib = libtorch_folder();
    put("libtorch", libtorch_version(&lib));
    put("libtorch_cpu_sha256", files::sha256_file(&lib.join("libtorch_cpu.so")).ok());
    put("cargo_lock_sha256", Some(files::sha256(CARGO_LOCK)));
    put("target", Some(format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)));
    put("threads", Some(threads.to_string()));
    put("cores", std::thread::available_parallelism().ok().map(|cores| cores.to_string()));
    put("cpu", field("/proc/cpuinfo", "model name"));
    put("cpu_capability", cpu_capability());
    put("memory", field("/proc/meminfo", "MemTotal"));
    put("kernel", proc_text(Path::new("/proc/sys/kernel/osrelease")));
    let commit = git(&["rev-parse", "HEAD"]).and_then(|text| String::from_utf8(text).ok());
    put("git_commit", commit.map(|text| text.trim().to_string()));
    put("git_dirty", has_changes().map(|changes| changes.to_string()));
    for name in PINS {
        put(name, std::env::var(name).ok());
    }
    Environment { facts }
}

/// Whether tracked files of the working folder differ from its commit; `None` outside of a repository.
pub fn has_changes() -> Option<bool> {
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    changes.map(|changes| !changes.is_empty())
}

/// Reads it from LibTorch's archive or the Python package `torch`.
fn libtorch_version(lib: &Path) -> Option<String> {
    let of_package = || {
        let text = proc_text(&lib.join("../version.py"))?;
        let stated = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
        Some(stated.trim_matches(['\'', '"']).to_string())
    };
    proc_text(&lib.join("../build-version")).or_else(of_package)
}

fn cpu_capability() -> Option<String> {
    let flags = field("/proc/cpuinfo", "flags")?;
    let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    Some(["avx512f", "avx2"].into_iter().find(|name| has(name)).unwrap_or("baseline").to_string())
}

fn git(arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then_some(output.stdout)
}

fn proc_text(path: &Path) -> Option<String> {
    Some(files::kernel_text(path).ok()?.trim().to_string())
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = proc_text(Path::new(path))?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_libtorch_is_the_archives_or_the_packages() {
        let folder = tempfile::tempdir().unwrap();
        let lib = folder.path().join("lib");
        files::create_folder(&lib).unwrap();
        assert_eq!(libtorch_version(&lib), None);
        let package = "__all__ = ['__version__']\n__version__ = '2.11.0+cpu'\ndebug = False\n";
        files::write_atomic(&folder.path().join("version.py"), package.as_bytes()).unwrap();
        assert_eq!(libtorch_version(&lib).as_deref(), Some("2.11.0+cpu"));
        files::write_atomic(&folder.path().join("build-version"), b"2.11.0\n").unwrap();
        assert_eq!(libtorch_version(&lib).as_deref(), Some("2.11.0"));
    }

    #[test]
    fn times_are_written_as_rfc_3339_up_to_the_year_9999() {
        assert_eq!(rfc3339(0).as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert_eq!(rfc3339(1_763_683_200_250).as_deref(), Some("2025-11-21T00:00:00.250Z"));
        assert_eq!(rfc3339(253_402_300_799_999).as_deref(), Some("9999-12-31T23:59:59.999Z"));
        assert_eq!(rfc3339(253_402_300_800_000), None);
        assert_eq!(rfc3339(u64::MAX), None);
    }
}
