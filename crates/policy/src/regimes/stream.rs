//! Detects regimes online (PAR-15): one point at a time, constant memory.
//!
//! Offline K-means needs the whole run: the boundary of its third regime moves as points arrive.
//! This is its sequential form (MacQueen 1967) with the rule of DP-means for opening clusters
//! (Kulis, Jordan, ICML 2012): a point joins the current regime when it lies within a distance of
//! its mean, and moves the mean; when `confirm` points in a row lie outside and on one side, a new
//! regime began at the first of them. Regimes follow each other and never return.
//!
//! ```text
//!   current ──point near──▶ current (mean moves)
//!      │ point far                       point near, or on the other side
//!      ▼                                 ▲
//!   doubtful (1 … confirm-1 points) ─────┘
//!      │ the confirm-th far point on the same side
//!      ▼
//!   current, index + 1, started when the first far point came
//! ```

/// Size of a [`Stream`]'s stored form in bytes.
pub const STATE_BYTES: usize = 8 * 8;

/// When a regime counts as ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sensitivity {
    /// A point is far when it differs from the mean by more than this fraction of the mean. Default
    /// 0.2.
    pub distance: f64,
    /// Number of consecutive far points that begin a new regime. Default 6.
    pub confirm: u32,
}

impl Default for Sensitivity {
    fn default() -> Self {
        Self {
            distance: 0.2,
            confirm: 6,
        }
    }
}

/// The state of the detection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stream {
    /// Number of the current regime, from 1; 0 before the first point.
    pub regime: u32,
    /// When it started.
    pub start: f64,
    /// Mean rate of its points.
    pub rate: f64,
    /// Mean rate of the first completed regime, or of the current one.
    pub first_rate: f64,
    points: f64,
    doubtful: f64,
    doubtful_sum: f64,
    doubtful_start: f64,
}

impl Stream {
    /// Adds a point. Points that are not finite, or lie before the last regime's start, are
    /// ignored.
    pub fn push(&mut self, time: f64, rate: f64, how: Sensitivity) {
        if !time.is_finite() || !rate.is_finite() || (self.regime > 0 && time < self.start) {
            return;
        }
        if self.regime == 0 {
            *self = Self {
                regime: 1,
                start: time,
                rate,
                first_rate: rate,
                points: 1.0,
                ..Self::default()
            };
            return;
        }
        let away = rate - self.rate;
        if away.abs() <= how.distance.max(0.0) * self.rate.abs() {
            self.doubtful = 0.0;
            // The mean of all its points: a mean of the last few would follow a slow decline and
            // never end the regime.
            self.points += 1.0;
            self.rate += away / self.points;
            if self.regime == 1 {
                self.first_rate = self.rate;
            }
            return;
        }
        // The sign is the side.
        if self.doubtful == 0.0 || self.doubtful.signum() != away.signum() {
            (self.doubtful, self.doubtful_sum, self.doubtful_start) = (0.0, 0.0, time);
        }
        self.doubtful += away.signum();
        self.doubtful_sum += rate;
        if self.doubtful.abs() >= f64::from(how.confirm.max(1)) {
            self.regime = self.regime.saturating_add(1);
            self.start = self.doubtful_start;
            self.points = self.doubtful.abs();
            self.rate = self.doubtful_sum / self.points;
            self.doubtful = 0.0;
        }
    }

    /// Its stored form: eight little-endian doubles.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; STATE_BYTES] {
        let mut bytes = [0; STATE_BYTES];
        for (place, field) in bytes.chunks_exact_mut(8).zip(self.fields()) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Decodes the stored form. `None`: invalid. Scripts store it, so it may contain anything.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; STATE_BYTES] = bytes.try_into().ok()?;
        let mut fields = [0.0; 8];
        for (field, place) in fields.iter_mut().zip(bytes.chunks_exact(8)) {
            *field = f64::from_le_bytes(place.try_into().expect("chunks of eight"));
            if !field.is_finite() {
                return None;
            }
        }
        let [
            regime,
            start,
            rate,
            first_rate,
            points,
            doubtful,
            doubtful_sum,
            doubtful_start,
        ] = fields;
        let known = regime >= 0.0
            && regime <= f64::from(u32::MAX)
            && regime.fract() == 0.0
            && points >= 0.0;
        known.then_some(Self {
            regime: regime as u32,
            start,
            rate,
            first_rate,
            points,
            doubtful,
            doubtful_sum,
            doubtful_start,
        })
    }

    fn fields(&self) -> [f64; 8] {
        let Self {
            regime,
            start,
            rate,
            first_rate,
            points,
            doubtful,
            doubtful_sum,
            doubtful_start,
        } = *self;
        [
            f64::from(regime),
            start,
            rate,
            first_rate,
            points,
            doubtful,
            doubtful_sum,
            doubtful_start,
        ]
    }
}
