//! Reads WiredTiger's header, if it is asked for: then functions and structs of the version that is there are
//! known.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "wiredtiger")]
    wiredtiger::bind();
}

#[cfg(feature = "wiredtiger")]
mod wiredtiger {
    use std::{env, path::Path};

    /// Where another version than the system's is installed.
    const PLACE: &str = "WIREDTIGER_DIR";

    pub(crate) fn bind() {
        println!("cargo::rerun-if-env-changed={PLACE}");
        let mut bindings = bindgen::Builder::default()
            .header_contents("wiredtiger-wrapper.h", "#include <wiredtiger.h>")
            .allowlist_function("wiredtiger_(open|strerror)")
            .allowlist_type("WT_(CONNECTION|SESSION|CURSOR|ITEM)")
            .allowlist_var("WT_NOTFOUND")
            .layout_tests(false)
            .generate_comments(false)
            .formatter(bindgen::Formatter::None);
        if let Ok(place) = env::var(PLACE) {
            bindings = bindings.clang_arg(format!("-I{place}/include"));
            println!("cargo::rustc-link-search=native={place}/lib");
        }
        println!("cargo::rustc-link-lib=dylib=wiredtiger");
        let out = env::var("OUT_DIR").expect("cargo says where");
        bindings
            .generate()
            .expect("WiredTiger's header is there (Debian: libwiredtiger-dev), and libclang with its own")
            .write_to_file(Path::new(&out).join("wiredtiger.rs"))
            .expect("cargo's directory can be written to");
    }
}
