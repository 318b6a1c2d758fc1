//! Frames: any bytes in pieces of any length give frames that encode to the same bytes, or an
//! error; the lengths of the pieces make no difference.
//!
//! The first byte selects the length of the pieces, and whether checksums are corrected: a fuzzer
//! cannot guess one.

use nacre_wire::frame::{Frame, FrameReader, HEADER_LEN, crc32c};

pub fn run(input: &[u8]) {
    let Some((control, bytes)) = input.split_first() else {
        return;
    };
    let mut bytes = bytes.to_vec();
    if control & 1 == 1 {
        mend(&mut bytes);
    }
    let whole = cut(&bytes, bytes.len().max(1));
    let pieces = cut(&bytes, usize::from(control >> 1) + 1);
    assert_eq!(whole.0.len(), pieces.0.len(), "pieces make no difference");
    assert_eq!(whole.1, pieces.1, "pieces make no difference");
    for frame in &whole.0 {
        let written = frame.to_bytes();
        let (again, failed) = cut(&written, written.len());
        assert!(!failed && again.len() == 1, "one frame reads as one");
        assert_eq!(again[0].to_bytes(), written, "written and read back");
    }
}

/// The frames, and whether the rest is an error.
fn cut(bytes: &[u8], piece: usize) -> (Vec<Frame>, bool) {
    let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        reader.push(piece);
        loop {
            match reader.poll() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
        assert!(reader.room().1 > 0, "it always has room");
    }
    (frames, false)
}

/// Corrects magic numbers and checksums, frame by frame, as long as the lengths are valid.
fn mend(bytes: &mut [u8]) {
    let mut start = 0;
    while let Some(header) = bytes.get(start..start + HEADER_LEN) {
        let word = |at: usize| {
            u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize
        };
        let (meta, payload) = (start + HEADER_LEN, start + HEADER_LEN + word(8));
        let end = payload.saturating_add(word(12));
        if end > bytes.len() {
            return;
        }
        let (meta_crc, payload_crc) = (crc32c(&bytes[meta..payload]), crc32c(&bytes[payload..end]));
        bytes[start..start + 4].copy_from_slice(b"NCR1");
        bytes[start + 24..start + 28].copy_from_slice(&payload_crc.to_le_bytes());
        bytes[start + 32..start + 36].copy_from_slice(&meta_crc.to_le_bytes());
        let header_crc = crc32c(&bytes[start..start + 36]);
        bytes[start + 36..start + 40].copy_from_slice(&header_crc.to_le_bytes());
        start = end;
    }
}
