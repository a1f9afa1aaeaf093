//! Writes LibTorch's folder into the run path of the binary and of each crate's tests, so that they find it with
//! nothing exported by hand. With `DAPO_WHEEL` it is torch's folder beside the wheel's package.

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
    // Nothing is used of libtorch.so itself, and a linker leaves out what is not used. It is what
    // loads the CUDA libraries where the LibTorch that is found at run time has them.
    let all = "-Wl,--push-state,--no-as-needed,-ltorch,--pop-state";
    println!("cargo:rustc-link-arg=-L{lib}");
    println!("cargo:rustc-link-arg={all}");
}
