//! `docs/program.md` and `docs/metadata.md` are true: their commands are run, in order, on an
//! embedded cluster, and print what they show.
//!
//! A block ```` ```lua NAME ```` is a file to save. A block ```` ```sh ```` is run by `sh`, and
//! must succeed; ```` ```sh fails ```` must not; ```` ```sh soon ```` may fail for a minute before
//! it does. A block ````
//! ```text ```` after it is all it prints, both streams together; `...` in it stands for anything,
//! over lines too.

use super::nacre;
use super::operator::Site;
use std::path::Path;
use std::process::{Command, Stdio};

/// A fenced block: the text after the fence, and its lines.
struct Block {
    kind: String,
    text: String,
}

fn blocks(document: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        match (line.strip_prefix("```"), inside) {
            (Some(kind), false) => {
                found.push(Block {
                    kind: kind.to_owned(),
                    text: String::new(),
                });
                inside = true;
            }
            (Some(_), true) => inside = false,
            (None, true) => {
                let block = found.last_mut().expect("begun above");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!inside, "a block without an end");
    found
}

/// Whether a text matches a pattern, in which `...` matches anything.
fn fits(mut text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(rest) = text.strip_prefix(first) else {
        return false;
    };
    text = rest;
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return text.is_empty();
    };
    for part in middle {
        let Some(at) = text.find(part) else {
            return false;
        };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

fn run(script: &str, site: &Site, folder: &Path) -> (bool, String) {
    let binary = Path::new(env!("CARGO_BIN_EXE_nacre"));
    let path = format!(
        "{}:{}",
        binary.parent().expect("a folder").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    // Each test has its own ports; a reader has the default ones.
    let script = script.replace(
        "nacre up --detach",
        &format!("nacre up --detach --base-port {} >/dev/null", site.port()),
    );
    let file = folder.join("script.sh");
    std::fs::write(&file, format!("set -e\nexec 2>&1\n{script}")).expect("writable");
    let mut command = Command::new("timeout");
    command
        .args(["120", "sh"])
        .arg(&file)
        .current_dir(folder)
        .env("PATH", path)
        .env("NACRE_CLUSTER", site.dir());
    let output = command
        .env_remove("NACRE_NAME")
        .stdin(Stdio::null())
        .output()
        .expect("sh runs");
    (
        output.status.success(),
        String::from_utf8(output.stdout).expect("text"),
    )
}

#[test]
fn every_command_of_the_cookbook_prints_what_it_shows() {
    every_command_prints_what_is_shown("program", 9);
}

#[test]
fn every_command_about_metadata_prints_what_it_shows() {
    every_command_prints_what_is_shown("metadata", 11);
}

fn every_command_prints_what_is_shown(document: &str, ports: u16) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{document}.md"));
    let blocks = blocks(&std::fs::read_to_string(path).expect("the document is there"));
    let site = Site::new(&format!("cookbook-{document}"), ports);
    let folder = super::scratch(&format!("cookbook-{document}"));
    std::fs::create_dir_all(&folder).expect("writable");
    let mut ran = 0;
    for (at, block) in blocks.iter().enumerate() {
        match block.kind.split(' ').collect::<Vec<_>>()[..] {
            ["lua", name] => std::fs::write(folder.join(name), &block.text).expect("writable"),
            ["sh", ref fails @ ..] => {
                let (mut succeeded, mut said) = run(&block.text, &site, &folder);
                for _ in 0..if fails == ["soon"] { 600 } else { 0 } {
                    if succeeded {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    (succeeded, said) = run(&block.text, &site, &folder);
                }
                assert_eq!(succeeded, fails != ["fails"], "{}{said}", block.text);
                if let Some(shown) = blocks.get(at + 1).filter(|next| next.kind == "text") {
                    // A method's output may end without a newline; a block of a document cannot.
                    assert!(
                        fits(said.trim_end(), shown.text.trim_end()),
                        "{}says\n{said}and not\n{}",
                        block.text,
                        shown.text
                    );
                }
                ran += 1;
            }
            ["text"] => {}
            _ => panic!("a block of no kind: {}", block.kind),
        }
    }
    assert!(ran >= 10, "{ran} blocks");
    drop(nacre([
        "down",
        "--dir",
        site.dir().to_str().expect("readable"),
    ]));
}

#[test]
fn dots_are_anything_and_the_rest_is_itself() {
    assert!(
        fits("abc", "abc")
            && fits("abc", "a...")
            && fits("abc", "...c")
            && fits("a\nb\nc", "a\n...\nc")
            && fits("abcbc", "a...b...c")
    );
    assert!(
        !fits("abc", "ab")
            && !fits("abc", "b...")
            && !fits("abc", "...b")
            && !fits("ac", "a...b...c")
            && !fits("", "a")
    );
}
