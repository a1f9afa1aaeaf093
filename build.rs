//! Writes LibTorch's folder into the run path of the binary and of each crate's tests, so that they find it with
//! nothing exported by hand. With `DAPO_WHEEL` it is torch's folder beside the wheel's package. Digests what makes a run.

use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn main() {
    // Set by torch-sys, which honours LIBTORCH and LIBTORCH_USE_PYTORCH.
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    println!("cargo:rerun-if-env-changed=DAPO_WHEEL");
    let lib = std::env::var("DEP_TCH_LIBTORCH_LIB")
        .expect("torch-sys did not report LibTorch's folder; run `just setup`");
    if std::env::var_os("DAPO_WHEEL").is_some() {
        println!("cargo:rustc-env=DAPO_LIBTORCH_LIB=torch/lib");
        println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../torch/lib");
    } else {
        println!("cargo:rustc-env=DAPO_LIBTORCH_LIB={lib}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    }
    match std::env::var("CARGO_PKG_NAME").as_deref() {
        Ok("dapo-core") => println!("cargo:sources={}", digest_of_sources(String::new())),
        Ok("dapo-trainer") => {
            digest_of(&format!("{lib}/libtorch_cpu.so"));
            let core = std::env::var("DEP_DAPO_CORE_SOURCES");
            let digest = digest_of_sources(core.expect("dapo-core did not report its sources"));
            let version = format!("{} (sources {})", env!("CARGO_PKG_VERSION"), &digest[..12]);
            println!("cargo:rustc-env=DAPO_SOURCES_SHA256={digest}");
            println!("cargo:rustc-env=DAPO_VERSION={version}");
        }
        _ => {}
    }
    // Nothing is used of libtorch.so itself, and a linker leaves out what is not used. It is what
    // loads the CUDA libraries where the LibTorch that is found at run time has them.
    let all = "-Wl,--push-state,--no-as-needed,-ltorch,--pop-state";
    println!("cargo:rustc-link-arg=-L{lib}");
    println!("cargo:rustc-link-arg={all}");
}

/// The digest of the library of 450 MB is a fact of every run and takes half a second: it is made once, for the file as
/// it is now (`base::files::state`). For any other file, and where `sha256sum` is missing, each process makes it.
#[expect(clippy::disallowed_methods, reason = "a build script has no base::files")]
fn digest_of(library: &str) {
    println!("cargo:rerun-if-changed={library}");
    let digest = std::process::Command::new("sha256sum").arg(library).output();
    let text = digest
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    if let (Some(digest), Ok(file)) = (text.get(..64), std::fs::metadata(library)) {
        let (device, inode, bytes) = (file.dev(), file.ino(), file.size());
        println!(
            "cargo:rustc-env=DAPO_LIBTORCH_CPU={device} {inode} {bytes} {} {} {digest}",
            file.ctime(),
            file.ctime_nsec()
        );
    }
}

fn digest_of_sources(mut listing: String) -> String {
    list_sources(Path::new("."), &mut listing);
    sha256(listing.as_bytes())
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[expect(clippy::disallowed_methods, reason = "a build script has no base::files")]
fn list_sources(folder: &Path, listing: &mut String) {
    const OTHERS: [&str; 5] = ["__pycache__", "experiments", "golden", "snapshots", "target"];
    let entries = std::fs::read_dir(folder).expect("a folder of sources can be listed");
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name.starts_with("Cargo.") || OTHERS.contains(&&*name) {
            continue;
        }
        println!("cargo:rerun-if-changed={}", path.display());
        if path.is_dir() {
            list_sources(&path, listing);
        } else {
            let bytes = std::fs::read(&path).expect("a source can be read");
            *listing += &format!("{}  {}\n", sha256(&bytes), path.display());
        }
    }
}
