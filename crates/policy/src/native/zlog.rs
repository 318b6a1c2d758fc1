//! `zlog` of the library (`library/classes/zlog.lua`) in Rust: the same methods, encodings and
//! stored bytes. The tests run both, and `docs/program.md` compares their sizes. The description of
//! methods and state there applies here too.

use crate::{Context, MethodFlags, NativeClass, Object, Stop, errno};
use bytes::Bytes;

/// The class.
#[derive(Clone, Copy, Debug, Default)]
pub struct Zlog;

/// Maximum number of entries freed by one call of `trim_to`.
const FREE_MAX: u64 = 500;

type Said<T> = Result<T, Stop>;

const fn fail<T>(errno: i32) -> Said<T> {
    Err(Stop::Errno(errno))
}

/// The content of the map's header.
struct Log {
    epoch: u64,
    /// Largest position in use.
    max: Option<u64>,
    /// Everything below is trimmed.
    low: u64,
}

/// A position that has been written, filled or trimmed.
enum Entry {
    Data(Bytes),
    Filled,
    Trimmed,
}

impl Entry {
    fn parse(value: &Bytes) -> Said<Self> {
        match value.first() {
            Some(b'D') => Ok(Self::Data(value.slice(1..))),
            Some(b'F') => Ok(Self::Filled),
            Some(b'T') => Ok(Self::Trimmed),
            _ => fail(errno::EIO),
        }
    }
    /// The errno for a call that expected an unwritten position.
    fn refuse<T>(&self) -> Said<T> {
        fail(match self {
            Self::Data(_) => errno::EEXIST,
            Self::Filled => errno::ENODATA,
            Self::Trimmed => errno::EIDRM,
        })
    }
}

fn key(position: u64) -> Bytes {
    Bytes::from(format!("{position:016}"))
}

/// Decimal digits, at most 2^53 - 1: the range of the class in Lua.
fn number(text: &[u8]) -> Said<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits);
    match text.and_then(|text| text.parse().ok()) {
        Some(n) if n <= crate::INTEGER_MAX.unsigned_abs() => Ok(n),
        _ => fail(errno::EINVAL),
    }
}

impl Log {
    fn load(object: &mut dyn Object) -> Said<Self> {
        let header = match object.map_read_header() {
            Err(Stop::Errno(errno::ENOENT)) => Bytes::new(),
            other => other?,
        };
        if header.is_empty() {
            return Ok(Self {
                epoch: 0,
                max: None,
                low: 0,
            });
        }
        let mut words = header.split(|byte| *byte == b' ');
        let mut next = || words.next().ok_or(Stop::Errno(errno::EIO));
        let epoch = number(next()?)?;
        let max = match next()? {
            b"-1" => None,
            max => Some(number(max)?),
        };
        Ok(Self {
            epoch,
            max,
            low: number(next()?)?,
        })
    }

    fn save(&self, object: &mut dyn Object) -> Said<()> {
        object.map_write_header(Bytes::from(format!(
            "{} {} {}",
            self.epoch,
            self.max_text(),
            self.low
        )))
    }

    fn max_text(&self) -> String {
        self.max
            .map_or_else(|| "-1".to_owned(), |max| max.to_string())
    }

    fn look(&self, position: u64, object: &mut dyn Object) -> Said<Option<Entry>> {
        if position < self.low {
            return Ok(Some(Entry::Trimmed));
        }
        if self.max.is_none_or(|max| position > max) {
            return Ok(None);
        }
        match object.map_get_val(&key(position)) {
            Ok(value) => Entry::parse(&value).map(Some),
            Err(Stop::Errno(errno::ENOENT)) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    fn put(mut self, position: u64, value: Bytes, object: &mut dyn Object) -> Said<()> {
        object.map_set_vals(vec![(key(position), value)])?;
        if self.max.is_none_or(|max| position > max) {
            self.max = Some(position);
            self.save(object)?;
        }
        Ok(())
    }
}

/// Opens the log for a caller with this epoch.
fn enter(epoch: u64, object: &mut dyn Object) -> Said<Log> {
    let log = Log::load(object)?;
    if epoch < log.epoch {
        fail(errno::ESTALE)
    } else {
        Ok(log)
    }
}

/// `EPOCH POSITION`.
fn position(input: &[u8]) -> Said<(u64, u64)> {
    let mut words = input.trim_ascii_end().splitn(2, |byte| *byte == b' ');
    let epoch = number(words.next().unwrap_or_default())?;
    Ok((epoch, number(words.next().unwrap_or_default())?))
}

fn write(input: &Bytes, object: &mut dyn Object) -> Said<()> {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return fail(errno::EINVAL);
    };
    let (epoch, position) = position(&input[..end])?;
    let log = enter(epoch, object)?;
    if let Some(entry) = log.look(position, object)? {
        return entry.refuse();
    }
    let data = &input[end + 1..];
    let mut value = Vec::with_capacity(data.len() + 1);
    value.push(b'D');
    value.extend_from_slice(data);
    log.put(position, value.into(), object)
}

fn read(input: &Bytes, object: &mut dyn Object) -> Said<Bytes> {
    let (epoch, position) = position(input)?;
    match enter(epoch, object)?.look(position, object)? {
        None => fail(errno::ENOENT),
        Some(Entry::Data(data)) => Ok(data),
        Some(entry) => entry.refuse(),
    }
}

fn fill(input: &Bytes, object: &mut dyn Object) -> Said<()> {
    let (epoch, position) = position(input)?;
    let log = enter(epoch, object)?;
    match log.look(position, object)? {
        None => log.put(position, Bytes::from_static(b"F"), object),
        Some(Entry::Filled) => Ok(()),
        Some(entry) => entry.refuse(),
    }
}

fn trim(input: &Bytes, object: &mut dyn Object) -> Said<()> {
    let (epoch, position) = position(input)?;
    let log = enter(epoch, object)?;
    if position < log.low {
        Ok(())
    } else {
        log.put(position, Bytes::from_static(b"T"), object)
    }
}

fn trim_to(input: &Bytes, object: &mut dyn Object) -> Said<Bytes> {
    let (epoch, position) = position(input)?;
    let mut log = enter(epoch, object)?;
    let below = key(position.max(log.low));
    let (keys, more) = if log.max.is_some() {
        object.map_get_keys(b"", FREE_MAX)?
    } else {
        (Vec::new(), false)
    };
    let freed: Vec<&Bytes> = keys.iter().filter(|key| **key < below).collect();
    for key in &freed {
        object.map_remove_key(key)?;
    }
    if position > log.low {
        log.low = position;
        log.max = log.max.max(Some(position - 1));
        log.save(object)?;
    }
    let word = if more && freed.len() == keys.len() {
        "more"
    } else {
        "done"
    };
    Ok(Bytes::from(format!("{} {word}", freed.len())))
}

fn seal(input: &Bytes, object: &mut dyn Object) -> Said<Bytes> {
    let epoch = number(input.trim_ascii_end())?;
    let mut log = Log::load(object)?;
    if epoch <= log.epoch {
        return fail(errno::ESTALE);
    }
    log.epoch = epoch;
    log.save(object)?;
    Ok(Bytes::from(log.max_text()))
}

fn max_position(input: &Bytes, object: &mut dyn Object) -> Said<Bytes> {
    let log = enter(number(input.trim_ascii_end())?, object)?;
    Ok(Bytes::from(log.max_text()))
}

impl NativeClass for Zlog {
    fn method(&self, name: &str) -> Option<MethodFlags> {
        match name {
            "write" | "fill" | "trim" | "trim_to" | "seal" => {
                Some(MethodFlags { read_only: false })
            }
            "read" | "max_position" => Some(MethodFlags { read_only: true }),
            _ => None,
        }
    }

    fn call(
        &self,
        method: &str,
        input: Bytes,
        context: &mut Context<'_>,
    ) -> Result<(i32, Bytes), Stop> {
        let object = &mut *context.object;
        let output = match method {
            "write" => write(&input, object).map(|()| Bytes::new()),
            "read" => read(&input, object),
            "fill" => fill(&input, object).map(|()| Bytes::new()),
            "trim" => trim(&input, object).map(|()| Bytes::new()),
            "trim_to" => trim_to(&input, object),
            "seal" => seal(&input, object),
            "max_position" => max_position(&input, object),
            _ => fail(errno::EOPNOTSUPP),
        };
        output.map(|output| (0, output))
    }
}
