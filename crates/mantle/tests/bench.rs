//! A daemon on a test bench: given measurements, one policy, ticks.

use bytes::Bytes;
use nacre_mantle::*;
use nacre_types::{Epoch, Time};

pub struct Bench {
    pub engine: Engine,
    pub now: Time,
    pub tick: u64,
    pub activation: u64,
    /// Lines for the cluster's log.
    pub log: Vec<String>,
    /// The last saved state.
    pub saved: Option<Bytes>,
}

pub fn digest(text: &str) -> [u8; 32] {
    let mut digest = [0; 32];
    let hash = nacre_policy::Chunk::new("", text).fingerprint();
    digest[..8].copy_from_slice(&hash.to_le_bytes());
    digest
}

impl Bench {
    pub fn new(whoami: u32, options: Options) -> Self {
        let engine = Engine::new(Rank(whoami), options);
        Self {
            engine,
            now: Time(1_000_000_000),
            tick: 0,
            activation: 0,
            log: Vec::new(),
            saved: None,
        }
    }
    /// With all load movable in one tick.
    pub fn free(whoami: u32, policy: &str) -> Self {
        let mut bench = Self::new(
            whoami,
            Options {
                load_fraction: 1.0,
                ..Options::default()
            },
        );
        bench.activate(policy);
        bench
    }
    pub fn handle(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.engine.handle(self.now, input, &mut out);
        for output in &out {
            match output {
                Output::Log(_, line) => self.log.push(line.clone()),
                Output::Save(bytes) => self.saved = Some(bytes.clone()),
                Output::ReadPolicy { .. } | Output::Decided(_) => {}
            }
        }
        out
    }
    /// The map names a version.
    pub fn name(&mut self, policy: &str) -> Vec<Output> {
        self.activation += 1;
        let program = ProgramRef {
            name: "p".into(),
            version: self.activation as u32,
            activation: self.activation,
            digest: digest(policy),
        };
        self.handle(Input::Map {
            epoch: Epoch(self.activation),
            program: Some(program),
        })
    }
    pub fn activate(&mut self, policy: &str) {
        let out = self.name(policy);
        if out
            .iter()
            .any(|output| matches!(output, Output::ReadPolicy { .. }))
        {
            self.handle(Input::Source {
                digest: digest(policy),
                text: Ok(Bytes::copy_from_slice(policy.as_bytes())),
            });
        }
    }
    pub fn tick(&mut self, metrics: Metrics) -> Decision {
        self.ask(Facts::Cluster(metrics))
    }
    pub fn ask(&mut self, facts: Facts) -> Decision {
        self.tick += 1;
        self.now = self.now + std::time::Duration::from_secs(10);
        let number = self.tick;
        let out = self.handle(Input::Tick { number, facts });
        let decided = out.into_iter().find_map(|output| match output {
            Output::Decided(decision) => Some(*decision),
            _ => None,
        });
        decided.expect("every tick is answered")
    }
}

/// Ranks with these loads; units of `whoami` with these loads.
pub fn metrics(loads: &[f64], units: &[f64]) -> Metrics {
    let rank = |load: &f64| RankMetrics {
        auth: *load,
        all: *load,
        cpu: *load / 2.0,
        requests: *load,
        ..RankMetrics::default()
    };
    Metrics {
        ranks: loads
            .iter()
            .enumerate()
            .map(|(at, load)| (Rank(at as u32), rank(load)))
            .collect(),
        units: units
            .iter()
            .enumerate()
            .map(|(at, load)| Unit {
                name: format!("u{at}"),
                load: *load,
                ..Unit::default()
            })
            .collect(),
    }
}

/// Receivers and units of a decision.
pub fn moved(decision: &Decision) -> Vec<(u32, Vec<&str>)> {
    decision
        .moves
        .iter()
        .map(|step| (step.to.0, step.units.iter().map(String::as_str).collect()))
        .collect()
}
