//! SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): numbers drawn from a seed, for whatever must
//! replay and needs no cryptography.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Its finalizer: every bit of the input affects every bit of the output; 0 stays 0.
#[must_use]
pub const fn mix(state: u64) -> u64 {
    let a = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ (b >> 31)
}

/// The generator. The field is its state: the seed at first.
#[derive(Clone, Debug, Default)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }
    /// The next number below `end`, which must not be 0. Slightly uneven where `end` is huge.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
    /// The next number in [0, 1), of 53 random bits, which a double represents exactly.
    pub const fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of Vigna's reference implementation for the seed 1234567.
    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = SplitMix64(1_234_567);
        let drawn = [(); 5].map(|()| random.draw());
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, published);
        assert!((0..1000).all(|_| random.below(7) < 7 && random.unit() < 1.0));
    }
}
