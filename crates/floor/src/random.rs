//! Pseudo-random numbers, the same in every run.

/// Xorshift of 64 bits.
pub struct Random(u64);

impl Random {
    /// Starts with a fixed seed.
    pub const fn new() -> Self {
        Self(88_172_645_463_325_252)
    }
    /// A number below `limit`.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
