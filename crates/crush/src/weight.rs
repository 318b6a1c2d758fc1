//! Weights: 16.16 fixed-point numbers, by convention the capacity in TiB.

use std::fmt;

/// A weight in units of 1/65536. Every draw depends on the exact value, so it is never a float.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(pub u32);

impl Weight {
    /// Takes no data.
    pub const ZERO: Self = Self(0);
    /// 1.0; as a reweight: the device takes its whole share.
    pub const ONE: Self = Self(0x1_0000);
    /// Maximum weight of a single device: 100.0.
    pub const DEVICE_MAX: Self = Self(100 << 16);
    /// Maximum weight of a bucket: 65535.0.
    pub const BUCKET_MAX: Self = Self(65_535 << 16);

    /// `value` rounded down to a 16.16 number; `None` if it is negative, not a number, or at least
    /// 65536.
    #[must_use]
    pub fn from_f64(value: f64) -> Option<Self> {
        (0.0..65_536.0)
            .contains(&value)
            .then_some(Self((value * 65_536.0) as u32))
    }

    /// As a float, for display and for shares.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 65_536.0
    }

    /// Parses a decimal number. Up to five decimals it is read as `crushtool` reads it, through a
    /// single-precision float, so that its maps mean the same here; with more decimals it is read
    /// exactly, which large weights need. `None` if it is not a plain non-negative number below
    /// 65536.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole)
            || !digits(fraction)
            || whole.len() + fraction.len() == 0
            || text.len() > 40
        {
            return None;
        }
        if fraction.len() <= Self::CRUSHTOOL_DECIMALS_MAX {
            let value = text.parse::<f32>().ok()?;
            return (value < 65_536.0).then(|| Self((f64::from(value) * 65_536.0) as u32));
        }
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        // Digits beyond the twelfth do not affect any multiple of 2⁻¹⁶ that a user would write.
        let kept = &fraction[..fraction.len().min(12)];
        let scale = 10_u64.pow(kept.len() as u32);
        let fraction = (u128::from(kept.parse::<u64>().ok()?) << 16) / u128::from(scale);
        (whole < 65_536).then_some(Self((whole << 16) as u32 | fraction as u32))
    }

    const CRUSHTOOL_DECIMALS_MAX: usize = 5;

    /// The number to three decimals as C's `printf` rounds it, from a single-precision float, as
    /// `crushtool` prints it.
    #[must_use]
    pub fn rounded(self) -> String {
        // A float with 24 significant bits that came from an integer is an integer.
        let float = self.0 as f32 as u64;
        let (mut thousandths, rest) = ((float * 1000) >> 16, (float * 1000) & 0xffff);
        if rest > 0x8000 || (rest == 0x8000 && thousandths % 2 == 1) {
            thousandths += 1;
        }
        format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
    }
}

/// Three decimals if they suffice to read the same weight back, otherwise six.
impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.rounded();
        if Self::parse(&short) == Some(*self) {
            return f.write_str(&short);
        }
        // The middle of the interval that is read as this weight: a reader with fewer bits most
        // likely reads it too.
        let millionths = ((u64::from(self.0) * 2 + 1) * 1_000_000) >> 17;
        write!(
            f,
            "{}.{:06}",
            millionths / 1_000_000,
            millionths % 1_000_000
        )
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.5}", self.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_crushtool_prints_is_read_and_printed_unchanged() {
        for (text, raw) in [
            ("0.000", 0),
            ("1.000", 65536),
            ("0.909", 59572),
            ("9.095", 596_049),
            ("100.000", 100 << 16),
        ] {
            assert_eq!(Weight::parse(text), Some(Weight(raw)), "{text}");
            assert_eq!(Weight(raw).to_string(), text);
        }
        // Ties go to the even digit, as in printf: 4096/65536 is 0.0625.
        assert_eq!(Weight(4096).rounded(), "0.062");
        assert_eq!(Weight(3 * 4096).rounded(), "0.188");
    }

    #[test]
    fn what_is_not_a_weight_is_refused() {
        for bad in [
            "",
            ".",
            "-1",
            "+1",
            "1e3",
            "nan",
            "inf",
            "65536",
            "99999999999999999999",
            "1.2.3",
            "0x10",
            "1 ",
        ] {
            assert_eq!(Weight::parse(bad), None, "{bad}");
        }
        assert_eq!(Weight::parse(".5"), Some(Weight(0x8000)));
        assert_eq!(Weight::parse("7."), Some(Weight(7 << 16)));
        for bad in [-0.5, f64::NAN, 65_536.0] {
            assert_eq!(Weight::from_f64(bad), None);
        }
    }

    proptest! {
        #[test]
        fn every_weight_reads_back(raw in 0..=Weight::BUCKET_MAX.0) {
            let text = Weight(raw).to_string();
            prop_assert_eq!(Weight::parse(&text), Some(Weight(raw)), "{}", text);
        }
    }
}
