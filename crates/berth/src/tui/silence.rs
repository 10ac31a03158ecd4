//! Since when a daemon has said nothing: one that is stopped keeps its connections, and nothing else tells.

use std::time::{Duration, Instant};

use berth_model::Settings;

use crate::live::Origin;

/// Waking a driver or a busy host may take a while; this is longer than either should.
const TOO_LONG: Duration = Duration::from_secs(3);
/// Snapshots that have to fail to come.
const SNAPSHOTS: u32 = 2;

#[derive(Debug)]
pub struct Silence {
    last_word: Instant,
    /// Silence up to this is nothing unusual; `None` for an engine of our own, which cannot be stopped without us.
    usual: Option<Duration>,
}

impl Silence {
    /// `interval`: how often snapshots were asked for. A daemon that looks more rarely sends fewer.
    pub fn new(origin: &Origin, settings: &Settings, interval: Duration, now: Instant) -> Self {
        let looks = settings.monitor.interval.get().max(settings.monitor.probed_interval.get());
        let usual = (*origin == Origin::Daemon).then(|| TOO_LONG.max(interval.max(looks).saturating_mul(SNAPSHOTS)));
        Self { last_word: now, usual }
    }

    pub fn hear(&mut self, now: Instant) {
        self.last_word = now;
    }

    /// How long nothing was heard, if that is unusual.
    pub fn at(&self, now: Instant) -> Option<Duration> {
        let silence = now.saturating_duration_since(self.last_word);
        self.usual.filter(|usual| silence > *usual).map(|_| silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_a_daemon_can_be_silent_and_only_for_longer_than_its_snapshots_take() {
        let (begin, settings) = (Instant::now(), Settings::default());
        let mut silence = Silence::new(&Origin::Daemon, &settings, SECOND / 2, begin);
        assert_eq!((silence.at(begin + SECOND * 3), silence.at(begin + SECOND * 12)), (None, Some(SECOND * 12)));
        silence.hear(begin + SECOND * 12);
        assert_eq!(silence.at(begin + SECOND * 13), None);
        let rare = Silence::new(&Origin::Daemon, &settings, SECOND * 10, begin);
        assert_eq!((rare.at(begin + SECOND * 12), rare.at(begin + SECOND * 21)), (None, Some(SECOND * 21)));
        let own = Silence::new(&Origin::OurOwn { because: "test".into() }, &settings, SECOND, begin);
        assert_eq!(own.at(begin + SECOND * 100), None);
    }
}
