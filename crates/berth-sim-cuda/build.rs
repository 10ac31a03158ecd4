//! Names the library as real programs look for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Without this a preloaded library's functions would come back from our own cuGetProcAddress.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // A program that unloads the driver must not take the code from under its thread.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
