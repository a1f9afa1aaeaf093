//! Writes LibTorch's folder into the run path of the binary and of each crate's tests, so that they find it with
//! nothing exported by hand. With `DAPO_WHEEL` it is torch's folder beside the wheel's package.

use std::os::unix::fs::MetadataExt;

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
    if std::env::var("CARGO_PKG_NAME").as_deref() == Ok("dapo-trainer") {
        digest_of(&format!("{lib}/libtorch_cpu.so"));
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
        let state = [
            file.dev() as i64,
            file.ino() as i64,
            file.size() as i64,
            file.ctime(),
            file.ctime_nsec(),
        ];
        println!(
            "cargo:rustc-env=DAPO_LIBTORCH_CPU={} {digest}",
            state.map(|number| number.to_string()).join(" ")
        );
    }
}
