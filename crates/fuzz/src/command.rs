//! Commands of administrators: a request is either refused with a sentence, or is a command that
//! reads the same after it was written.

use nacre_command::Command;

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match Command::parse(text) {
        Ok(command) => {
            let written = command.to_json().to_string();
            let again = Command::parse(&written).unwrap_or_else(|why| panic!("{why}\n{written}"));
            assert!(again == command, "{written}");
        }
        Err(why) => assert!(!why.to_string().trim().is_empty(), "a sentence"),
    }
}
