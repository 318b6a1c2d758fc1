//! `nacre class library`: the classes that come with Nacre, described by their comments. No cluster
//! is contacted.

use crate::out::Out;
use crate::table::table;
use anyhow::{Context, Result};
use nacre_policy::Profile;
use nacre_policy::library::{self, LibraryClass, Method};
use serde_json::{Value, json};

/// The classes with these names, all if there are none.
///
/// # Errors
/// There is no such class.
pub fn classes(names: &[String]) -> Result<Vec<&'static LibraryClass>> {
    if names.is_empty() {
        return Ok(library::classes().iter().collect());
    }
    let found = |name: &String| {
        library::class(name).with_context(|| {
            format!("the library has no class {name}; `nacre class library` lists them")
        })
    };
    names.iter().map(found).collect()
}

/// Shows the library, or some of its classes.
///
/// # Errors
/// There is no such class.
pub fn show(names: &[String], source: bool, out: &mut Out) -> Result<()> {
    if names.is_empty() {
        let row = |class: &LibraryClass| {
            let summary = class.documented().summary;
            let methods: Vec<String> = class
                .documented()
                .methods
                .into_iter()
                .map(|method| method.name)
                .collect();
            json!({ "name": class.name, "profile": profile(class), "what": summary, "methods": methods })
        };
        let rows: Vec<Value> = library::classes().iter().map(row).collect();
        if out.json() {
            return out.value(&json!({ "classes": rows }));
        }
        return out.bytes(
            table(
                &[("NAME", "name"), ("PROFILE", "profile"), ("WHAT", "what")],
                &rows,
            )
            .as_bytes(),
        );
    }
    classes(names)?
        .into_iter()
        .try_for_each(|class| show_one(class, source, out))
}

fn show_one(class: &LibraryClass, source: bool, out: &mut Out) -> Result<()> {
    let name = class.name;
    if source {
        return out.bytes(class.source.as_bytes());
    }
    let found = class.documented();
    if out.json() {
        let method = |method: &Method| {
            json!({
                "name": method.name, "what": method.text, "input": method.input, "output": method.output, "errors": method.errors,
                "examples": method.examples,
            })
        };
        let methods: Vec<Value> = found.methods.iter().map(method).collect();
        return out.value(&json!({
            "name": name, "profile": profile(class), "what": found.summary, "text": found.text, "methods": methods,
        }));
    }
    out.line(&format!(
        "{name} ({}): {}\n\n{}",
        profile(class),
        found.summary,
        found.text
    ))?;
    for method in found.methods {
        out.line(&format!("\n{}: {}", method.name, method.text))?;
        out.line(&format!(
            "  input:  {}\n  output: {}\n  errors: {}",
            method.input, method.output, method.errors
        ))?;
        method
            .examples
            .iter()
            .try_for_each(|example| out.line(&format!("  e.g.    {example}")))?;
    }
    Ok(())
}

fn profile(class: &LibraryClass) -> &'static str {
    match class.profile() {
        Profile::Portable => "portable",
        Profile::Luau => "luau",
    }
}
