//! Facts about machine and build for readers, outside every comparison.

use crate::base::files;
use crate::experiment::compare::differing_keys;
use crate::records::{Environment, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The folder of linking; in a wheel, which uses its run path, a name without a place.
const LIBTORCH_LIB: &str = env!("DAPO_LIBTORCH_LIB");

const CARGO_LOCK: &[u8] = include_bytes!("../Cargo.lock");

pub const SOURCES: &str = "sources_sha256";

pub const SOURCES_SHA256: &str = env!("DAPO_SOURCES_SHA256");

pub const VERSION: &str = env!("DAPO_VERSION");

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
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// UTC, such as `2026-11-20T08:15:30.250Z`; `None` beyond the year 9999.
pub fn rfc3339(milliseconds: u64) -> Option<String> {
    const LAST: u64 = 253_402_300_799_999;
    let time = UNIX_EPOCH + Duration::from_millis(milliseconds.min(LAST));
    (milliseconds <= LAST).then(|| humantime::format_rfc3339_millis(time).to_string())
}

/// The other facts may change bits of fast arithmetic.
pub const CHANGES_NO_BIT: [&str; 3] = ["git_dirty", "kernel", "memory"];

/// Sources that one side does not state do not differ.
pub fn differing<'a>(
    a: &'a BTreeMap<String, String>,
    b: &'a BTreeMap<String, String>,
) -> BTreeSet<&'a String> {
    let stated = a.contains_key(SOURCES) && b.contains_key(SOURCES);
    let mut names = differing_keys(a, b);
    names.retain(|name| stated || *name != SOURCES);
    names
}

pub fn differing_machine<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<&'a String> {
    let matters = |name: &&String| !CHANGES_NO_BIT.contains(&name.as_str()) && *name != SOURCES;
    names.into_iter().filter(matters).collect()
}

pub fn other_sources(first: &Environment, sessions: &[Session]) -> Option<String> {
    let later = sessions.iter().filter_map(|session| Some(&session.changed.get(SOURCES)?[1]));
    let all: BTreeSet<&String> = first.facts.get(SOURCES).into_iter().chain(later).collect();
    let others = all.into_iter().filter(|sources| *sources != SOURCES_SHA256);
    let others: Vec<String> = others.map(|sources| sources.chars().take(12).collect()).collect();
    (!others.is_empty()).then(|| others.join(", "))
}

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
    put("libtorch_cpu_sha256", digest_of_libtorch(&lib.join("libtorch_cpu.so")));
    put("cargo_lock_sha256", Some(files::sha256(CARGO_LOCK)));
    put(SOURCES, Some(SOURCES_SHA256.to_string()));
    put("target", Some(format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)));
    put("threads", Some(threads.to_string()));
    put("cores", std::thread::available_parallelism().ok().map(|cores| cores.to_string()));
    put("cpu", field("/proc/cpuinfo", "model name"));
    put("cpu_capability", cpu_capability());
    put("memory", field("/proc/meminfo", "MemTotal"));
    put("kernel", proc_text(Path::new("/proc/sys/kernel/osrelease")));
    put("git_commit", git_in(Path::new(""), &["rev-parse", "HEAD"]));
    put("git_dirty", has_changes_in(Path::new("")).map(|changes| changes.to_string()));
    for name in PINS {
        put(name, std::env::var(name).ok());
    }
    Environment { facts }
}

/// Whether tracked files differ from the commit of the repository that a folder lies in; `None` outside of one.
pub fn has_changes_in(folder: &Path) -> Option<bool> {
    let changes = git_in(folder, &["status", "--porcelain", "--untracked-files=no"]);
    changes.map(|changes| !changes.is_empty())
}

/// How a file stands in the git repository that it lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileInGit {
    /// HEAD has the file as it is.
    Committed {
        commit: String,
    },
    Changed,
    /// HEAD does not have it: untracked, ignored, or only added.
    NotCommitted,
    NoRepository,
}

pub fn file_in_git(file: &Path) -> FileInGit {
    let folder = file.parent().unwrap_or(Path::new(""));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if repository(folder).is_none() {
        return FileInGit::NoRepository;
    }
    let text = |arguments: &[&str]| git_in(folder, arguments);
    let kept = text(&["rev-parse", "--verify", "--quiet", &format!("HEAD:./{name}")]);
    let (Some(kept), Some(commit)) = (kept, text(&["rev-parse", "HEAD"])) else {
        return FileInGit::NotCommitted;
    };
    // `git status` and `git diff` believe the index, which can be told that a file has no changes.
    if text(&["hash-object", "--", &name]) == Some(kept) {
        FileInGit::Committed { commit }
    } else {
        FileInGit::Changed
    }
}

pub fn repository(folder: &Path) -> Option<PathBuf> {
    git_in(folder, &["rev-parse", "--show-toplevel"]).map(PathBuf::from)
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

/// As the build made it, while the file is the one that the build saw.
fn digest_of_libtorch(library: &Path) -> Option<String> {
    match option_env!("DAPO_LIBTORCH_CPU").and_then(|built| built.rsplit_once(' ')) {
        Some((state, digest)) if files::state(library).ok()? == state => Some(digest.to_string()),
        _ => files::sha256_file_once(library).ok(),
    }
}

fn cpu_capability() -> Option<String> {
    let flags = field("/proc/cpuinfo", "flags")?;
    let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    Some(["avx512f", "avx2"].into_iter().find(|name| has(name)).unwrap_or("baseline").to_string())
}

/// What git says, without a line end. An empty path is the working folder.
fn git_in(folder: &Path, arguments: &[&str]) -> Option<String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let output = Command::new("git").args(arguments).current_dir(folder).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim_end_matches(['\n', '\r']).to_string())
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
    fn a_program_is_known_by_paths_and_contents_of_core_and_trainer_alone() {
        fn list(folder: &Path, inside: &str, listing: &mut String) {
            const OTHERS: [&str; 5] =
                ["__pycache__", "experiments", "golden", "snapshots", "target"];
            let mut names = files::list(folder).unwrap();
            names.retain(|name| !name.starts_with('.') && !name.starts_with("Cargo."));
            names.retain(|name| !OTHERS.contains(&name.as_str()));
            names.sort();
            for name in names {
                let (path, inside) = (folder.join(&name), format!("{inside}/{name}"));
                if path.is_dir() {
                    list(&path, &inside, listing);
                } else {
                    let digest = files::sha256_file(&path).unwrap();
                    *listing += &format!("{digest}  {inside}\n");
                }
            }
        }
        let trainer = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (mut core, mut own) = (String::new(), String::new());
        list(&trainer.join("../core"), ".", &mut core);
        list(trainer, ".", &mut own);
        assert!(core.contains("  ./base/rng.rs\n") && own.contains("  ./experiment/keys.toml\n"));
        assert!(
            own.contains("/bridge.py\n") && !own.contains("commands") && !own.contains("report/")
        );
        let digest = files::sha256((files::sha256(core.as_bytes()) + &own).as_bytes());
        assert_eq!(SOURCES_SHA256, digest);
        let version = format!("{} (sources {})", env!("CARGO_PKG_VERSION"), &digest[..12]);
        assert_eq!((VERSION, &describe(1).facts[SOURCES]), (version.as_str(), &digest));
    }

    #[test]
    fn other_sources_are_a_fact_where_both_state_them_and_no_fact_of_the_machine() {
        let facts = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let [old, a, b] = [&[][..], &[(SOURCES, "a")], &[(SOURCES, "b"), ("cpu", "b")]].map(facts);
        let names = |one, other| differing(one, other).into_iter().cloned().collect::<Vec<_>>();
        assert_eq!(names(&old, &a), [""; 0]);
        assert_eq!(names(&old, &b), ["cpu"]);
        assert_eq!(names(&a, &b), ["cpu", SOURCES]);
        assert_eq!(differing_machine(&names(&a, &b)), ["cpu"]);
        let run = |facts| other_sources(&Environment { facts }, &[]);
        assert_eq!([run(old), run(facts(&[(SOURCES, SOURCES_SHA256)]))], [None, None]);
        assert_eq!(run(b).as_deref(), Some("b"));
    }

    #[test]
    fn the_digest_that_the_build_made_is_taken_for_that_file_alone() {
        let library = libtorch_folder().join("libtorch_cpu.so");
        assert_eq!(digest_of_libtorch(&library), files::sha256_file(&library).ok());
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("libtorch_cpu.so");
        assert_eq!(digest_of_libtorch(&other), None);
        files::write_atomic(&other, b"another library").unwrap();
        assert_eq!(digest_of_libtorch(&other), Some(files::sha256(b"another library")));
    }

    #[test]
    fn a_file_is_committed_only_where_head_has_its_very_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grid.toml");
        let write = |text: &str| files::write_atomic(&file, text.as_bytes()).unwrap();
        let git = |line: &str| {
            let done = git_in(folder.path(), &line.split(' ').collect::<Vec<_>>());
            assert!(done.is_some(), "git {line}");
        };
        write("a");
        assert_eq!(file_in_git(&file), FileInGit::NoRepository);
        git("init -q");
        assert_eq!(file_in_git(&file), FileInGit::NotCommitted);
        git("add grid.toml");
        assert_eq!(file_in_git(&file), FileInGit::NotCommitted);
        git("-c user.name=a -c user.email=a@b commit -q -m a");
        let FileInGit::Committed { commit } = file_in_git(&file) else { panic!("not committed") };
        assert_eq!(commit.len(), 40);
        git("update-index --assume-unchanged grid.toml");
        write("b");
        assert_eq!(has_changes_in(folder.path()), Some(false));
        assert_eq!(file_in_git(&file), FileInGit::Changed);
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
