//! Names the library as real programs look for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Without this a preloaded library's functions would come back from our own cuGetProcAddress.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
