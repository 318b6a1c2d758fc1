//! `cluster.toml`: a text is either refused with a sentence, or is a configuration that survives
//! being written and read back unchanged.

use nacre_node::config::Config;
use std::path::Path;

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let dir = Path::new("/cluster");
    match Config::parse(text, dir) {
        Ok(config) => {
            let written = config.to_text();
            let again =
                Config::parse(&written, dir).unwrap_or_else(|why| panic!("{why}\n{written}"));
            assert!(again == config, "{written}");
        }
        Err(why) => assert!(!why.trim().is_empty(), "an error says what is wrong"),
    }
}
