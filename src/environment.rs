//! Facts about the machine and the build, for the reader of a run. Outside every comparison.

use crate::files;
use crate::run_folder::Environment;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The folder that LibTorch was linked from.
const LIBTORCH_LIB: &str = env!("DAPO_LIBTORCH_LIB");

/// CPU, memory, kernel, threads, LibTorch, toolchain's target, and the commit of the working
/// folder's repository. A fact that cannot be found is left out.
pub fn describe(threads: u64) -> Environment {
    let mut facts = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_string(), value);
        }
    };
    put("harness", Some(env!("CARGO_PKG_VERSION").to_string()));
    let lib = Path::new(LIBTORCH_LIB);
    put("libtorch", proc_text(&lib.join("../build-version")));
    put("libtorch_cpu_sha256", files::sha256_file(&lib.join("libtorch_cpu.so")).ok());
    put("target", Some(format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)));
    put("threads", Some(threads.to_string()));
    put("cores", std::thread::available_parallelism().ok().map(|cores| cores.to_string()));
    put("cpu", field("/proc/cpuinfo", "model name"));
    put("cpu_capability", cpu_capability());
    put("memory", field("/proc/meminfo", "MemTotal"));
    put("kernel", proc_text(Path::new("/proc/sys/kernel/osrelease")));
    put("git_commit", git(&["rev-parse", "HEAD"]));
    put("git_dirty", git_dirty());
    for name in ["ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS"] {
        put(name, std::env::var(name).ok());
    }
    Environment { facts }
}

fn cpu_capability() -> Option<String> {
    let flags = field("/proc/cpuinfo", "flags")?;
    let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    Some(["avx512f", "avx2"].into_iter().find(|name| has(name)).unwrap_or("baseline").to_string())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

fn git_dirty() -> Option<String> {
    let arguments = ["status", "--porcelain", "--untracked-files=no"];
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| (!output.stdout.is_empty()).to_string())
}

fn proc_text(path: &Path) -> Option<String> {
    Some(files::read_text(path).ok()?.trim().to_string())
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = proc_text(Path::new(path))?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}
