//! One example: its name, its bytes, and how to decode such bytes.

use nacre_types::Epoch;
use nacre_wire::frame::{Frame, FrameReader};
use nacre_wire::{Measure, Message, Wire};
use std::fmt::Debug;

/// The result of decoding.
pub struct Decoded {
    /// Whether it equals the sample's value.
    pub same: bool,
    /// This version's encoding of it.
    pub bytes: Vec<u8>,
}

type Decoder = Box<dyn Fn(&[u8]) -> Result<Decoded, String>>;

/// See the module head.
pub struct Sample {
    /// Its name in the golden file; names of records and frames end in their version.
    pub name: String,
    /// This version's encoding. Samples of older versions are only decoded.
    pub bytes: Vec<u8>,
    /// Decodes such bytes.
    pub decode: Decoder,
}

/// An example of a value.
pub fn value<T: Wire + PartialEq + Debug + 'static>(name: &str, value: T) -> Sample {
    let bytes = value.to_bytes();
    let measured = Measure::of("it", &value);
    assert_eq!(
        measured.length(),
        bytes.len() as u64,
        "{name} is measured as it is written"
    );
    assert!(
        measured.fits("it", bytes.len()).is_ok(),
        "{name} can be read"
    );
    let decode = move |bytes: &[u8]| {
        let found = T::from_bytes(bytes).map_err(|why| why.to_string())?;
        Ok(Decoded {
            same: found == value,
            bytes: found.to_bytes(),
        })
    };
    Sample {
        name: name.to_owned(),
        bytes,
        decode: Box::new(decode),
    }
}

/// An example of a message, as a whole frame.
pub fn frame(epoch: Epoch, message: Message) -> Sample {
    let (_, version, _) = message.kind();
    let name = format!("frame {} v{version}", message.name());
    let sent = Frame { epoch, message };
    let bytes = sent.to_bytes();
    let decode = move |bytes: &[u8]| {
        let mut reader = FrameReader::default();
        reader.push(bytes);
        let found = reader.poll().map_err(|why| why.to_string())?;
        let found = found.ok_or("more bytes are needed")?;
        if reader.buffered() > 0 {
            return Err("bytes left over".to_owned());
        }
        // A payload arrives in one piece, however it was sent.
        let flat = |frame: &Frame| frame.message.payload().concat();
        let mut meta = (Vec::new(), Vec::new());
        found.message.put_meta(&mut meta.0);
        sent.message.put_meta(&mut meta.1);
        let same = meta.0 == meta.1 && flat(&found) == flat(&sent) && found.epoch == sent.epoch;
        Ok(Decoded {
            same,
            bytes: found.to_bytes(),
        })
    };
    Sample {
        name,
        bytes,
        decode: Box::new(decode),
    }
}
