//! Stand-in until the real crate is merged: rendezvous hashing over the devices of the text.
pub struct Crush {
    pub devices: Vec<u32>,
}
#[derive(Default, Debug)]
pub struct Scratch;
pub mod text {
    pub fn parse(t: &str) -> Result<super::Crush, String> {
        let mut devices = vec![];
        for l in t.lines() {
            if let Some(r) = l.strip_prefix("device ") {
                devices.push(r.split(' ').next().unwrap().parse().map_err(|_| "bad device")?);
            }
        }
        Ok(super::Crush { devices })
    }
}
pub mod hash {
    pub fn stable_mod(x: u32, n: u32) -> u32 {
        let mask = n.next_power_of_two() - 1;
        if x & mask < n { x & mask } else { x & (mask >> 1) }
    }
    pub fn object(namespace: &[u8], key: &[u8], name: &[u8]) -> u32 {
        let mut h = 2166136261u32;
        for b in namespace.iter().chain(if key.is_empty() { name } else { key }) {
            h = (h ^ u32::from(*b)).wrapping_mul(16777619);
        }
        h ^ (h >> 15)
    }
}
impl Crush {
    pub fn standin(&self, pool: u64, seed: u32, size: usize, weights: &[u32]) -> Vec<u32> {
        let mut v: Vec<(u64, u32)> = self
            .devices
            .iter()
            .filter(|d| weights.get(**d as usize).copied().unwrap_or(0) > 0)
            .map(|d| {
                let mut x = pool.wrapping_mul(0x9E3779B97F4A7C15) ^ (u64::from(seed) << 20) ^ u64::from(*d) << 1 | 1;
                x ^= x >> 31;
                x = x.wrapping_mul(0xBF58476D1CE4E5B9);
                x ^= x >> 27;
                x = x.wrapping_mul(0x94D049BB133111EB);
                (x ^ (x >> 31), *d)
            })
            .collect();
        v.sort();
        v.truncate(size);
        v.into_iter().map(|x| x.1).collect()
    }
}
