//! What comes back: the time after which a figure looks most like itself.
//!
//! The correlation of the last values with those before them, shifted by each number of steps; the straight line through them is
//! taken out first, since whatever grows looks like itself at every shift.

/// A shift at which the correlation is less is none.
const LEAST: f64 = 0.5;
/// Times the best: as good as that.
const NEARLY: f64 = 0.85;
/// It must have come back that often.
const TIMES: usize = 3;
const SHORTEST: usize = 3;

/// In steps; `None` where nothing comes back.
pub fn season(values: &[f64]) -> Option<usize> {
    let longest = values.len() / TIMES;
    if longest <= SHORTEST {
        return None;
    }
    let flat = without_line(values);
    let whole: f64 = flat.iter().map(|value| value * value).sum();
    if whole <= f64::EPSILON {
        return None;
    }
    let at = |shift: usize| {
        let pairs = flat.len() - shift;
        let alike: f64 = flat[shift..].iter().zip(&flat).map(|(later, earlier)| later * earlier).sum();
        // As if there were as many pairs as values.
        alike / whole * count(flat.len()) / count(pairs)
    };
    let alike: Vec<f64> = (0..=longest + 1).map(at).collect();
    // A shift by a little is always alike: only what fell below zero and rose again has come back.
    let fallen = alike.iter().position(|one| *one < 0.0)?;
    let peaks = (fallen.max(SHORTEST)..=longest)
        .filter(|shift| alike[*shift] >= alike[shift - 1] && alike[*shift] >= alike[shift + 1]);
    let peaks: Vec<usize> = peaks.filter(|shift| alike[*shift] >= LEAST).collect();
    let best = peaks.iter().map(|shift| alike[*shift]).max_by(f64::total_cmp)?;
    // Twice the season is one too: the shortest of those that are nearly as good, and what noise has moved it by.
    let first = *peaks.iter().find(|shift| alike[**shift] >= NEARLY * best)?;
    peaks
        .into_iter()
        .filter(|shift| *shift <= first + first / 4)
        .max_by(|one, other| alike[*one].total_cmp(&alike[*other]))
}

fn without_line(values: &[f64]) -> Vec<f64> {
    let many = count(values.len());
    let middle = (many - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / many;
    let places = || (0..values.len()).map(|place| count(place) - middle);
    let along: f64 = places().zip(values).map(|(place, value)| place * value).sum();
    let slope = along / places().map(|place| place * place).sum::<f64>();
    places().zip(values).map(|(place, value)| value - mean - slope * place).collect()
}

fn count(many: usize) -> f64 {
    f64::from(u32::try_from(many).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: impl Fn(u32) -> f64) -> Vec<f64> {
        (0..240).map(of).collect()
    }

    #[test]
    fn what_comes_back_every_24_steps_is_found_also_while_it_grows() {
        let wave = |step: u32| (f64::from(step % 24) / 24.0 * std::f64::consts::TAU).sin();
        assert_eq!(season(&values(wave)), Some(24));
        assert_eq!(season(&values(|step| wave(step) + f64::from(step) * 0.1)), Some(24));
        let noisy = |step: u32| wave(step) + f64::from(step * 7_919 % 101) / 101.0 - 0.5;
        assert!(season(&values(noisy)).is_some_and(|steps| steps.abs_diff(24) <= 1));
    }

    #[test]
    fn what_only_grows_stays_or_scatters_has_no_season() {
        assert_eq!(season(&values(|_| 3.0)), None);
        assert_eq!(season(&values(|step| f64::from(step) * 2.0)), None);
        assert_eq!(season(&values(|step| f64::from((step * step * 7_919 + step * 31) % 1_009))), None);
        assert_eq!(season(&[1.0, 2.0]), None);
    }
}
