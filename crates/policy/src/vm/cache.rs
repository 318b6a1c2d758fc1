//! Compiled chunks of one VM.

use super::place;
use crate::budget::SOURCE_MAX;
use crate::{Chunk, Kind, ScriptError};
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua};
use std::collections::BTreeMap;

/// Bytes of compiled chunks that a VM keeps: a text of 64 KiB may take 1.5 MiB, and each collection
/// traverses all of them.
const BYTES_MAX: usize = 16 << 20;

/// Loaded chunks by fingerprint, and when each was last used. The least recently used one is
/// evicted.
#[derive(Debug)]
pub(super) struct Cache {
    entries: BTreeMap<u64, Entry>,
    entries_max: usize,
    bytes: usize,
    clock: u64,
    pub hits: u64,
    pub misses: u64,
    /// A chunk was evicted: it is garbage now.
    pub evicted: bool,
}

#[derive(Debug)]
struct Entry {
    chunk: Chunk,
    function: Function,
    /// Memory taken by compiling it, including the text.
    bytes: usize,
    used_at: u64,
}

impl Cache {
    pub(super) fn new(entries_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            entries_max: entries_max.max(1),
            bytes: 0,
            clock: 0,
            hits: 0,
            misses: 0,
            evicted: false,
        }
    }

    /// A function for one call. The compiled code is shared; the environment and upvalues belong to
    /// the call.
    pub(super) fn load(lua: &Lua, chunk: &Chunk) -> Result<Function, ScriptError> {
        let mut cache = lua.app_data_mut::<Self>().expect("every VM has a cache");
        cache.clock += 1;
        let now = cache.clock;
        let function = match cache.entries.get_mut(&chunk.fingerprint()) {
            // Two texts may have the same fingerprint, by chance or malice: only the text decides.
            Some(entry) if entry.chunk == *chunk => {
                entry.used_at = now;
                let function = entry.function.clone();
                cache.hits += 1;
                function
            }
            _ => {
                cache.misses += 1;
                let before = lua.used_memory();
                let function = compile(lua, chunk.name(), chunk.text())?;
                let bytes = lua.used_memory().saturating_sub(before) + chunk.text().len();
                cache.insert(chunk.clone(), function.clone(), bytes);
                function
            }
        };
        function
            .deep_clone()
            .map_err(|error| ScriptError::plain(Kind::Memory, chunk.name(), place::root(&error)))
    }

    /// Inserts an entry; the new entry itself is never evicted.
    fn insert(&mut self, chunk: Chunk, function: Function, bytes: usize) {
        let key = chunk.fingerprint();
        self.remove(key);
        while self.entries.len() >= self.entries_max
            || (self.bytes + bytes > BYTES_MAX && !self.entries.is_empty())
        {
            let oldest = self
                .entries
                .iter()
                .min_by_key(|(_, entry)| entry.used_at)
                .map(|(key, _)| *key);
            self.evicted = true;
            self.remove(oldest.expect("it is not empty"));
        }
        self.bytes += bytes;
        self.entries.insert(
            key,
            Entry {
                chunk,
                function,
                bytes,
                used_at: self.clock,
            },
        );
    }

    fn remove(&mut self, key: u64) {
        self.bytes -= self.entries.remove(&key).map_or(0, |entry| entry.bytes);
    }
}

/// Compiles a source text.
pub(super) fn compile(lua: &Lua, name: &str, text: &[u8]) -> Result<Function, ScriptError> {
    if text.len() > SOURCE_MAX {
        let message = format!(
            "the script has {} bytes, more than {SOURCE_MAX}; split it",
            text.len()
        );
        return Err(ScriptError::plain(Kind::Syntax, name, message));
    }
    lua.load(text)
        .set_name(format!("={name}"))
        .set_mode(ChunkMode::Text)
        .into_function()
        .map_err(|error| {
            let message = place::root(&error);
            if message.contains("not enough memory") {
                return ScriptError::plain(Kind::Memory, name, message);
            }
            let (line, message) = match place::position(&message) {
                Some((_, line, rest)) => (Some(line), rest.to_owned()),
                None => (None, message),
            };
            // A script chooses its chunk's name, which may look like a place, including line 0.
            let number = line.and_then(|line| (line as usize).checked_sub(1));
            let source = number
                .and_then(|number| text.split(|byte| *byte == b'\n').nth(number))
                .unwrap_or_default();
            let message = match place::hint(&String::from_utf8_lossy(source)) {
                Some(hint) => format!("{message}; {hint}"),
                None => message,
            };
            ScriptError {
                line,
                ..ScriptError::plain(Kind::Syntax, name, place::shorten(&message))
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_texts_with_one_fingerprint_are_not_mistaken_for_each_other() {
        let lua = Lua::new();
        lua.set_app_data(Cache::new(4));
        let one = Chunk::new("c", "return 1");
        let two = Chunk::new("c", "return 2").colliding(&one);
        let run = |chunk: &Chunk| {
            Cache::load(&lua, chunk)
                .expect("it compiles")
                .call::<i64>(())
                .expect("it runs")
        };
        assert_eq!(
            [run(&one), run(&one), run(&two), run(&two), run(&one)],
            [1, 1, 2, 2, 1]
        );
        let cache = lua.app_data_ref::<Cache>().expect("set above");
        assert_eq!((cache.hits, cache.misses), (2, 3));
    }
}
