//! Aligned memory for direct I/O.

/// Size of a block, and the alignment of addresses.
pub const BLOCK: usize = 4096;

/// Bytes at an address that is a multiple of [`BLOCK`].
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let memory = vec![0; len + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        Self { memory, start, len }
    }
    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
    /// All bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// `len`, rounded up to whole blocks.
pub const fn whole_blocks(len: usize) -> usize {
    len.next_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_memory_begins_at_a_block() {
        for len in [1, BLOCK, 3 * BLOCK + 5] {
            let mut memory = Aligned::zeroed(len);
            memory.bytes_mut()[len - 1] = 7;
            assert_eq!(
                (
                    memory.bytes().as_ptr().align_offset(BLOCK),
                    memory.bytes().len()
                ),
                (0, len)
            );
        }
        assert_eq!([0, 1, BLOCK].map(whole_blocks), [0, BLOCK, BLOCK]);
    }
}
