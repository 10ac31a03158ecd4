//! Processor demand: what is due by when, and whether it fits into the time until then.
//!
//! Not every instant is looked at: from the last one that matters it goes backward, and where less is due than there is time for, all
//! instants are left out by which even that much would fit (quick processor-demand analysis). What takes long even so is not known.

/// Looks at what one stream has due by an instant, each time everybody is reckoned through. The loop waits for that, so it is bounded.
pub(super) const MOST_LOOKS: usize = 25_000;
/// Pieces of work that can be told apart by when they are due.
const MOST_COUNTED: f64 = 1e15;
/// Seconds by which sums of measured times may be off.
pub(super) const TOLERANCE: f64 = 1e-9;

/// What is due, and how much of the time there is for it.
pub(super) struct Demand<'a> {
    /// The newcomer's is the last.
    pub streams: Vec<Stream<'a>>,
    pub share: f64,
}

/// Whether everybody is in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outcome {
    InTime,
    /// By this instant more is due than there is time for, and by no later one; without end if it only gets worse.
    LateAt(f64),
    /// It would take too long to find out.
    Unreckoned,
}

/// One stream of demand: at most one piece under way, and further ones where it serves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream<'a> {
    pub name: Option<&'a str>,
    /// Of the piece under way: when it is due and what it has left.
    pub first: Option<(f64, f64)>,
    /// Of further pieces: the first begins then, each is due so much later and takes so much; the next begins with that.
    pub further: Option<(f64, f64, f64)>,
}

/// The outcome from an instant on, where sums tell it: something has no end; or there is time for everything, even if all that is to be done
/// once was due by then and what comes again was due as soon as it can be.
pub(super) fn at_a_glance<'a>(streams: impl Iterator<Item = Stream<'a>>, share: f64, from: f64) -> Option<Outcome> {
    let sums = |(once, rate), stream: Stream<'_>| {
        let first = stream.first.map_or(0.0, |(_, left)| left);
        (once + first, rate + stream.rate())
    };
    let (once, rate) = streams.fold((0.0, 0.0), sums);
    if !(rate + once).is_finite() {
        return Some(Outcome::LateAt(f64::INFINITY));
    }
    (rate < share - TOLERANCE && once <= (share - rate) * from).then_some(Outcome::InTime)
}

// === impl Demand ===

impl Demand<'_> {
    /// GPU time that is due by then.
    pub fn by(&self, at: f64) -> f64 {
        self.streams.iter().map(|stream| stream.demand(at)).sum()
    }

    /// GPU time per second in the long run.
    pub fn rate(&self) -> f64 {
        self.streams.iter().map(Stream::rate).sum()
    }

    /// What is due where somebody is late, and how much time there is for it; where it only gets worse, what a second brings.
    pub fn late(&self, at: f64) -> (f64, f64) {
        let (at, due) = if at.is_finite() { (at, self.by(at)) } else { (1.0, self.rate()) };
        (due, self.share * at)
    }

    pub fn is_late(&self, demand: f64, at: f64) -> bool {
        demand > self.share * at + TOLERANCE
    }

    /// From `from` on.
    pub fn outcome(&self, from: f64) -> Outcome {
        self.walk(from, |_, _| true).0
    }

    /// The last instant by which somebody is late with the share and nobody would be with the whole time; without end if that is so in the
    /// long run.
    pub fn late_for_the_share(&self) -> Option<f64> {
        let would_fit = |demand: f64, at: f64| demand <= at + TOLERANCE;
        match self.walk(0.0, would_fit).0 {
            Outcome::LateAt(at) if at.is_finite() || would_fit(self.rate(), 1.0) => Some(at),
            Outcome::LateAt(_) | Outcome::InTime | Outcome::Unreckoned => None,
        }
    }

    /// The outcome, and how many instants were looked at. Those are passed over at which somebody is late and that do not count, by what is
    /// due and when.
    pub fn walk(&self, from: f64, counts: impl Fn(f64, f64) -> bool) -> (Outcome, usize) {
        let (rate, firsts) = (self.rate(), self.streams.iter().filter_map(|stream| stream.first));
        let once: f64 = firsts.clone().map(|(_, left)| left).sum();
        if !(rate + once).is_finite() {
            return (Outcome::LateAt(f64::INFINITY), 0);
        }
        // Beyond this the time that has passed makes up for all there is to do once.
        let until = if rate < self.share - TOLERANCE { (once / (self.share - rate)).max(from) } else { from };
        let until = firsts.fold(until, |until, (at, _)| until.max(at));
        // What is to be said where no instant is found at which somebody is late.
        let is_over = rate > self.share + TOLERANCE;
        let otherwise = if is_over { Outcome::LateAt(f64::INFINITY) } else { Outcome::Unreckoned };
        if self.streams.iter().any(|stream| stream.count(until) > MOST_COUNTED) {
            return (otherwise, 0);
        }
        let mut steps = 0;
        let mut next = self.last_until(until);
        while let Some(at) = next.filter(|at| *at >= from) {
            steps += 1;
            if steps * self.streams.len() > MOST_LOOKS {
                return (otherwise, steps);
            }
            let demand = self.by(at);
            if self.is_late(demand, at) && counts(demand, at) {
                return (Outcome::LateAt(at), steps);
            }
            // No more than that is due by any instant before, and by those from here on it fits. Where it does not, the next is the one before.
            next = self.last_until((demand / self.share).min(at.next_down()));
        }
        (if rate < self.share - TOLERANCE { Outcome::InTime } else { otherwise }, steps)
    }

    /// The last instant up to this one at which something is due.
    fn last_until(&self, at: f64) -> Option<f64> {
        self.streams.iter().filter_map(|stream| stream.last_until(at)).reduce(f64::max)
    }

    /// Those with something due at an instant at which the newcomer makes the difference. Where that would take long, of those who
    /// serve only the next while is looked at.
    pub fn endangered(&self, due: f64) -> Vec<String> {
        let Some((newcomer, others)) = self.streams.split_last() else { return Vec::new() };
        let until = match self.outcome(due) {
            Outcome::InTime => return Vec::new(),
            Outcome::LateAt(at) if at.is_infinite() => {
                let is_full = self.rate() - newcomer.rate() > self.share + TOLERANCE;
                let servers = others.iter().filter(|stream| !is_full && stream.further.is_some());
                return servers.filter_map(|stream| stream.name).map(str::to_owned).collect();
            }
            Outcome::LateAt(at) => at,
            Outcome::Unreckoned => f64::INFINITY,
        };
        let often: f64 = others.iter().filter_map(|stream| stream.further).map(|(_, deadline, _)| 1.0 / deadline).sum();
        let mut instants = MOST_LOOKS / self.streams.len();
        let until = until.min(due + instants as f64 / 2.0 / often);
        let mut is_new = |at: f64| {
            let demand = self.by(at);
            self.is_late(demand, at) && !self.is_late(demand - newcomer.demand(at), at)
        };
        let is_endangered = |stream: &&Stream<'_>| {
            let looked_at = stream.instants(due, until).take_while(|_| {
                instants = instants.saturating_sub(1);
                instants > 0
            });
            looked_at.into_iter().any(&mut is_new)
        };
        others.iter().filter(is_endangered).filter_map(|stream| stream.name).map(str::to_owned).collect()
    }
}

// === impl Stream ===

impl Stream<'_> {
    /// GPU time that is due by then.
    pub fn demand(&self, at: f64) -> f64 {
        let first = self.first.filter(|(due, _)| *due <= at).map_or(0.0, |(_, left)| left);
        first + self.further.filter(|_| self.count(at) > 0.0).map_or(0.0, |(_, _, takes)| self.count(at) * takes)
    }

    /// Further pieces that are due by then.
    fn count(&self, at: f64) -> f64 {
        self.further.map_or(0.0, |(begins, deadline, _)| ((at - begins) / deadline + TOLERANCE).floor().max(0.0))
    }

    /// GPU time per second in the long run.
    pub fn rate(&self) -> f64 {
        self.further.map_or(0.0, |(_, deadline, takes)| takes / deadline)
    }

    /// When something of it was last due, up to this instant.
    fn last_until(&self, at: f64) -> Option<f64> {
        let first = self.first.map(|(due, _)| due).filter(|due| *due <= at);
        let further = self.further.and_then(|(begins, deadline, _)| {
            let near = ((at - begins) / deadline).round();
            let counts = [near, near - 1.0].into_iter().filter(|count| *count >= 1.0);
            counts.map(|count| begins + count * deadline).find(|due| *due <= at)
        });
        first.into_iter().chain(further).reduce(f64::max)
    }

    /// When something of it is due from `from` on: of what comes again up to `until`.
    pub fn instants(&self, from: f64, until: f64) -> impl Iterator<Item = f64> {
        let first = self.first.map(|(due, _)| due).filter(|due| *due >= from);
        let further = self.further.into_iter().flat_map(move |(begins, deadline, _)| {
            let skipped = ((from - begins) / deadline - TOLERANCE).ceil().max(1.0);
            let due = (0..).map(move |number: u32| begins + (skipped + f64::from(number)) * deadline);
            due.take_while(move |due| *due <= until)
        });
        first.into_iter().chain(further)
    }
}
