//! The time that is left of work in equal units.

/// The mean time of a unit so far. The time left is estimated when a unit ends and falls between:
/// it never moves by more than the mean does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// Units and seconds that earlier work took.
    prior: (f64, f64),
    first: Option<u64>,
    /// Units that were done at the last change, and its time.
    last: (u64, f64),
}

impl Pace {
    /// Earlier work of the same kind counts as `units` done in `seconds`.
    pub fn with_prior(units: f64, seconds: f64) -> Self {
        Self { prior: (units, seconds), ..Self::default() }
    }

    /// Seconds left at `now` (since the start), `done` units done and `left` to do; `None`: nothing is known, or the last is overdue.
    pub fn seconds_left(&mut self, now: f64, done: u64, left: f64) -> Option<f64> {
        let first = *self.first.get_or_insert(done);
        if done != self.last.0 || done == first {
            self.last = (done, now);
        }
        let at = self.last.1;
        let (units, seconds) = self.prior;
        let new_units = done.saturating_sub(first);
        let mean = match new_units {
            0 => seconds / units,
            _ => (seconds + at) / (units + new_units as f64),
        };
        let seconds = f64::max(mean * left - (now - at), mean * (left - 1.0));
        mean.is_finite().then_some(seconds.max(0.0)).filter(|it| *it > 0.0 || left == 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_falls_steadily_although_units_differ() {
        // An evaluation follows every fifth unit: it takes as long as three units.
        let ends: Vec<f64> = (1..=40).map(|unit| f64::from(unit + unit / 5 * 3)).collect();
        let total = ends[39];
        let mut pace = Pace::default();
        assert_eq!(pace.seconds_left(0.5, 0, 40.0), None);
        let mut before: Option<f64> = None;
        for now in (1..64).map(f64::from) {
            let done = ends.iter().filter(|end| **end <= now).count();
            let left = pace.seconds_left(now, done as u64, (40 - done) as f64);
            let Some(left) = left else {
                assert!(now > total - 8.0, "{now}");
                continue;
            };
            if (8.0..total - 8.0).contains(&now) {
                assert!((left / (total - now)).log2().abs() < 1.0, "{now}: {left}");
            }
            // The first evaluation says what nobody could know before.
            if let Some(before) = before.filter(|before| now > 8.0 && *before > 5.0) {
                assert!((left - before).abs() < 0.5 * before, "{now}: {before} → {left}");
            }
            before = Some(left);
        }
    }

    #[test]
    fn a_resumed_run_is_judged_by_what_it_made_itself() {
        let mut pace = Pace::default();
        assert_eq!(pace.seconds_left(1.0, 30, 10.0), None);
        assert_eq!(pace.seconds_left(4.0, 32, 8.0), Some(16.0));
        assert_eq!(pace.seconds_left(5.0, 32, 8.0), Some(15.0));
        assert_eq!(pace.seconds_left(99.0, 32, 8.0), Some(14.0));
        assert_eq!(pace.seconds_left(99.0, 32, 1.0), None);
        assert_eq!(pace.seconds_left(99.0, 40, 0.0), Some(0.0));
    }

    #[test]
    fn earlier_work_speaks_until_there_is_more_of_the_present() {
        let mut pace = Pace::with_prior(10.0, 100.0);
        assert_eq!(pace.seconds_left(0.0, 0, 20.0), Some(200.0));
        assert_eq!(pace.seconds_left(50.0, 10, 10.0), Some(75.0));
    }
}
