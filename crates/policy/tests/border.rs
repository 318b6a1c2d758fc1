//! Luau is named in `src/vm*` only: the rest of this crate, and all other crates, use our types.

use std::path::Path;

#[test]
fn mlua_is_named_behind_the_border_only() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for entry in std::fs::read_dir(source).expect("the sources are here") {
        let path = entry.expect("readable").path();
        let outside = path.is_file() && path.file_name().is_some_and(|name| name != "vm.rs");
        if outside {
            let text = std::fs::read_to_string(&path).expect("text");
            assert!(!text.contains("mlua::"), "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} files were looked at");
}
