//! Writes random classes: their sources are a function of the run's seed.
//!
//! A method's body is a list of statements over data, attributes, omap and header, with loops,
//! branches on values read, caught errors, deliberate errors, and calls of other classes' methods,
//! some of which fail after they wrote. A running method's random decisions come from its input.

use crate::rng::Rng;
use std::fmt::Write as _;

/// Number of classes in a run.
pub const CLASSES: usize = 3;
/// Versions of each class.
pub const VERSIONS: usize = 3;
/// Methods of each class that clients call.
pub const METHODS: u64 = 4;
/// Methods of each class that other classes call.
const INNER: u64 = 2;
const PRELUDE: &str = include_str!("prelude.lua");

/// A class's name.
#[must_use]
pub fn name(class: usize) -> String {
    format!("random{class}")
}

/// All sources of a run: by class, then by version from 1.
#[must_use]
pub fn sources(seed: u64) -> Vec<Vec<String>> {
    let mut rng = Rng::new(seed ^ 0x6175_7468_6f72);
    (0..CLASSES)
        .map(|class| {
            (1..=VERSIONS)
                .map(|version| source(class, version, &mut rng))
                .collect()
        })
        .collect()
}

fn source(class: usize, version: usize, rng: &mut Rng) -> String {
    let names: Vec<String> = (0..CLASSES)
        .map(|class| format!("{:?}", name(class)))
        .collect();
    let mut text = format!(
        "local VERSION, SELF = {version}, {:?}\nlocal CLASSES = {{{}}}\n",
        name(class),
        names.join(", ")
    );
    text += PRELUDE;
    let mut author = Author {
        rng,
        class,
        depth: 0,
        calls: false,
    };
    for inner in 0..INNER {
        let body = author.body(3);
        let _ = write!(
            text,
            "\ninner(\"inner{inner}\", function(arg)\n{body}end)\n"
        );
    }
    author.calls = true;
    for method in 0..METHODS {
        let body = author.body(9);
        let _ = write!(text, "\nmethod(\"m{method}\", function(arg)\n{body}end)\n");
    }
    text
}

struct Author<'a> {
    rng: &'a mut Rng,
    class: usize,
    depth: u32,
    /// Whether this method may call other classes: called methods may not, so there are no cycles.
    calls: bool,
}

impl Author<'_> {
    fn body(&mut self, longest: u64) -> String {
        (0..self.rng.between(1, longest))
            .map(|_| self.statement() + "\n")
            .collect()
    }

    fn block(&mut self) -> String {
        self.depth += 1;
        let body = self.body(3);
        self.depth -= 1;
        body
    }

    /// A number from 0 to about `most`, either a constant or computed at run time.
    fn number(&mut self, most: u64) -> String {
        match self.rng.below(5) {
            0 => self.rng.below(most + 1).to_string(),
            1 => format!("math.random(0, {most})"),
            2 => format!("size() % {}", most + 1),
            3 => format!("(#arg * {}) % {}", self.rng.between(1, 200), most + 1),
            _ => format!("size() // {}", self.rng.between(1, 4)),
        }
    }

    fn attribute(&mut self) -> &'static str {
        self.rng
            .pick::<&'static str>(&["alpha", "beta", "gamma", "~sum", "~size"])
    }

    fn key(&mut self) -> String {
        match self.rng.below(3) {
            0 => format!("\"key-\" .. math.random({})", self.rng.between(1, 12)),
            1 => "\"key-\" .. (size() % 10)".to_owned(),
            _ => format!(
                "\"{}{}\"",
                self.rng.pick(&["key-", "other-", "k"]),
                self.rng.below(6)
            ),
        }
    }

    fn statement(&mut self) -> String {
        if self.depth < 2 && self.rng.one_in(3) {
            self.compound()
        } else {
            self.simple()
        }
    }

    fn compound(&mut self) -> String {
        let block = self.block();
        match self.rng.below(6) {
            0 => format!(
                "for i = 1, {} do\nsay(i)\n{block}end",
                self.rng.between(2, 4)
            ),
            1 => format!("try(function()\n{block}error(\"caught\")\nend)"),
            2 => format!("try(function()\n{block}end)"),
            3 => {
                let other = self.block();
                format!(
                    "if size() % 2 == {} then\n{block}else\n{other}end",
                    self.rng.below(2)
                )
            }
            4 => {
                let key = self.key();
                format!("if pcall(objclass.map_get_val, {key}) then\n{block}end")
            }
            _ => format!(
                "if objclass.exists() and string.find(objclass.read({}, 40):str(), \"[a-{}]\") then\n{block}end",
                self.number(300),
                self.rng.pick(&["f", "m", "t"])
            ),
        }
    }

    fn simple(&mut self) -> String {
        match self.rng.below(36) {
            0..=3 => {
                let (at, length) = (self.number(4000), self.number(900));
                format!("do local at, n = {at}, {length} objclass.write(at, n, blob(n)) end")
            }
            4 | 5 => format!("objclass.append(blob({}))", self.number(300)),
            6 => format!("objclass.write_full(blob({}))", self.number(2500)),
            7 => format!("objclass.truncate({})", self.number(5000)),
            8 => format!("objclass.zero({}, {})", self.number(3000), self.number(2000)),
            9 if self.rng.one_in(3) => "objclass.remove()".to_owned(),
            9 => "if objclass.exists() then objclass.remove() end".to_owned(),
            10 => format!("try(function() objclass.create({}) end)", self.rng.pick(&["true", "false"])),
            11 if self.rng.one_in(4) => "objclass.create(true)".to_owned(),
            11..=13 => {
                let (name, length) = (self.attribute(), self.number(80));
                format!("objclass.setxattr(\"{name}\", blob({length}))")
            }
            14 => format!("try(function() objclass.rmxattr(\"{}\") end)", self.attribute()),
            15 => format!("say(pcall(objclass.getxattr, \"{}\"))", self.attribute()),
            16..=18 => {
                let (key, length) = (self.key(), self.number(120));
                format!("objclass.map_set_val({key}, blob({length}))")
            }
            19 => format!(
                "do local t = {{}} for i = 1, {} do t[\"key-\" .. i * {}] = blob(i) end objclass.map_set_vals(t) end",
                self.rng.between(1, 9),
                self.rng.between(1, 3)
            ),
            20 => {
                let key = self.key();
                format!("try(function() objclass.map_remove_key({key}) end)")
            }
            21 if self.rng.one_in(2) => "try(objclass.map_clear)".to_owned(),
            21 | 22 => format!("objclass.map_write_header(blob({}))", self.number(60)),
            23 => {
                let (at, length) = (self.number(4000), self.number(600));
                format!("try(function() say(objclass.read({at}, {length}):str()) end)")
            }
            24 => {
                let (at, length) = (self.number(4000), self.number(600));
                format!("try(function() say(objclass.checksum({at}, {length})) end)")
            }
            25 => {
                let key = self.key();
                format!("try(function() say(objclass.map_get_val({key}):str()) end)")
            }
            26 => {
                let (after, prefix) = (self.key(), *self.rng.pick(&["", "key-", "key-1", "other", "zz"]));
                let after = if self.rng.one_in(2) { "\"\"".to_owned() } else { after };
                let most = self.rng.between(0, 6);
                format!(
                    "try(function() local t, more = objclass.map_get_vals({after}, \"{prefix}\", {most}) say_all(t) say(more) end)"
                )
            }
            27 => {
                let (after, most) = (self.key(), self.rng.between(1, 6));
                format!(
                    "try(function() local t, more = objclass.map_get_keys({after}, {most}) say_all(t) say(more) end)"
                )
            }
            28 => "try(function() say_all(objclass.getxattrs()) say(objclass.map_read_header():str()) end)".to_owned(),
            // Too much, too far or too long: refused without effect.
            29 => self
                .rng
                .pick(&[
                    "try(function() objclass.write(2^40, 1, blob(1)) end)",
                    "try(function() objclass.write(0, 9, blob(3)) end)",
                    "try(function() objclass.truncate(2^40) end)",
                    "try(function() objclass.setxattr(string.rep(\"n\", 300), blob(1)) end)",
                    "try(function() objclass.setxattr(\"beta\", blob(70000)) end)",
                    "try(function() objclass.map_set_val(string.rep(\"n\", 5000), blob(1)) end)",
                    "try(function() objclass.write(-1, 1, blob(1)) end)",
                    "try(function() objclass.write(0.5, 1, blob(1)) end)",
                ])
                .to_string(),
            30 if self.rng.one_in(3) => "error(\"gave up\")".to_owned(),
            30 if self.rng.one_in(3) => "error(-17)".to_owned(),
            30 => "say(math.random(1000000))".to_owned(),
            31 => "say(size())".to_owned(),
            32 => "for k, v in pairs({b = 2, a = 1, c = {}}) do say(k) say(type(v)) end".to_owned(),
            33 => "for i, v in ipairs({3, 1, 2}) do say(i * v) end".to_owned(),
            _ if !self.calls => "say(arg)".to_owned(),
            _ => {
                let other = (self.class + 1 + self.rng.below(CLASSES as u64 - 1) as usize) % CLASSES;
                let call = format!(
                    "say(objclass.call(\"{}\", \"inner{}\", arg .. {}):str())",
                    name(other),
                    self.rng.below(INNER),
                    self.rng.below(9)
                );
                if self.rng.one_in(3) { call } else { format!("try(function() {call} end)") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_policy::{Budget, Chunk, ClassVm};

    #[test]
    fn what_is_written_is_a_class_and_the_same_for_the_same_seed() {
        let mut vm = ClassVm::<super::super::plain::Plain>::new(16);
        for seed in 0..40 {
            let all = sources(seed);
            assert_eq!(all, sources(seed));
            assert_ne!(all, sources(seed + 1));
            for source in all.iter().flatten() {
                let methods = vm.check(&Chunk::new("random", source), &Budget::CHECK);
                let methods = methods.unwrap_or_else(|why| panic!("seed {seed}: {why}\n{source}"));
                assert_eq!(methods.len() as u64, METHODS + INNER + 2);
            }
        }
    }
}
