//! What nodes know of images: how long the next container of one will take.
//!
//! Of what nodes say of an image the middle is taken, figure by figure, and each node has one say however much it claims to have seen: where
//! three or more have told, none of them alone can make it longer or shorter than the others say. Of two the shorter is taken: who says too much
//! then keeps nobody out. Which GPU it ran on is not told, so one image on GPUs of several speeds is taken to be as fast everywhere.

use std::collections::BTreeMap;

use berth_model::cluster::api::PlaceRequest;
use berth_model::cluster::{NodeId, Past, Wanted};
use berth_model::deadline::{Spread, Unit};

#[derive(Debug, Default)]
pub struct Pasts {
    /// By node, with the version its report gave it.
    nodes: BTreeMap<NodeId, (u32, Vec<Past>)>,
}

impl Pasts {
    pub fn set(&mut self, node: &NodeId, version: u32, pasts: Vec<Past>) {
        self.nodes.insert(node.clone(), (version, pasts));
    }

    pub fn remove(&mut self, node: &NodeId) {
        self.nodes.remove(node);
    }

    pub fn version(&self, node: &NodeId) -> Option<u32> {
        self.nodes.get(node).map(|(version, _)| *version)
    }

    /// A request with how long it takes: as it says itself, or by what nodes have seen of its image.
    pub fn wanted(&self, request: &PlaceRequest) -> Wanted {
        let said = request.takes.and_then(|takes| Spread::of([takes.seconds()]));
        let (takes, run) = match request.image.as_deref().filter(|_| said.is_none()) {
            Some(image) => self.seen(image, request.unit),
            None => (said, said),
        };
        let PlaceRequest { deadline, unit, memory_bytes, gpus, .. } = *request;
        Wanted { deadline, unit, memory_bytes, gpus: gpus.max(1), takes, run }
    }

    /// GPU time that it takes, and time in all.
    fn seen(&self, image: &str, unit: Unit) -> (Option<Spread>, Option<Spread>) {
        let image = without_digest(image);
        let is_it = |past: &&Past| past.unit == unit && without_digest(&past.image) == image;
        let units = |past: &&Past| past.takes.or(past.run).map_or(0, |spread| spread.units);
        let says =
            |pasts: &'_ Vec<Past>| pasts.iter().filter(is_it).max_by_key(units).map(|past| (past.takes, past.run));
        let (takes, run): (Vec<_>, Vec<_>) = self.nodes.values().filter_map(|(_, pasts)| says(pasts)).unzip();
        (middle(&takes), middle(&run))
    }
}

/// Figure by figure; of the two in the middle the lesser, so that what is less in each of them is less here, too.
fn middle(said: &[Option<Spread>]) -> Option<Spread> {
    let said: Vec<&Spread> = said.iter().flatten().collect();
    let last = said.len().checked_sub(1)?;
    let seconds = |figure: fn(&Spread) -> f64| {
        let mut figures: Vec<f64> = said.iter().map(|spread| figure(spread)).collect();
        *figures.select_nth_unstable_by(last / 2, f64::total_cmp).1
    };
    let mut units: Vec<u32> = said.iter().map(|spread| spread.units).collect();
    Some(Spread {
        units: *units.select_nth_unstable(last / 2).1,
        median_seconds: seconds(|spread| spread.median_seconds),
        p90_seconds: seconds(|spread| spread.p90_seconds),
        most_seconds: seconds(|spread| spread.most_seconds),
    })
}

/// Swarm's manager adds the digest it has looked up to an image's name.
fn without_digest(image: &str) -> &str {
    image.split_once('@').map_or(image, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(image: &str, seconds: &[f64]) -> Past {
        let takes = Spread::of(seconds.iter().copied());
        Past { image: image.to_owned(), unit: Unit::Task, takes, run: takes }
    }

    fn told<const N: usize>(nodes: [Vec<Past>; N]) -> Pasts {
        let mut pasts = Pasts::default();
        for (number, past) in nodes.into_iter().enumerate() {
            pasts.set(&format!("n{number}").parse().unwrap(), 1, past);
        }
        pasts
    }

    /// How long at most, and in all.
    fn takes(pasts: &Pasts, request: serde_json::Value) -> [Option<f64>; 2] {
        let wanted = pasts.wanted(&serde_json::from_value::<PlaceRequest>(request).unwrap());
        [wanted.takes, wanted.run].map(|spread| spread.map(|spread| spread.most_seconds))
    }

    #[test]
    fn how_long_it_takes_is_what_it_says_or_what_a_node_has_seen_of_its_image() {
        let pasts = told([vec![past("solver:3@sha256:abc", &[2.0, 3.0]), past("other:1", &[1.0; 9])], vec![]]);
        assert_eq!(takes(&pasts, serde_json::json!({ "image": "solver:3" })), [Some(3.0); 2]);
        assert_eq!(takes(&pasts, serde_json::json!({ "image": "solver:3@sha256:def" })), [Some(3.0); 2]);
        assert_eq!(takes(&pasts, serde_json::json!({ "image": "solver:3", "takes": "5s" })), [Some(5.0); 2]);
        assert_eq!(takes(&pasts, serde_json::json!({ "image": "solver:3", "unit": "burst" })), [None; 2]);
        assert_eq!(takes(&pasts, serde_json::json!({ "image": "solver:4" })), [None; 2]);
    }

    #[test]
    fn one_node_cannot_speak_for_the_others() {
        let honest = |seconds| vec![past("solver:3", &[seconds])];
        let spread = |seconds| Spread { units: u32::MAX, most_seconds: 1e6, p90_seconds: 1e6, median_seconds: seconds };
        let lie = |takes: f64, run: f64| Past {
            takes: Some(spread(takes)),
            run: Some(spread(run)),
            ..past("solver:3", &[1.0])
        };
        let solver = serde_json::json!({ "image": "solver:3" });
        for lies in [vec![lie(1e6, 1e6)], vec![lie(2.5, 1e6)], vec![lie(1e6, 1e6); 256]] {
            let three = told([honest(2.0), lies.clone(), honest(3.0)]);
            assert_eq!(takes(&three, solver.clone()), [Some(3.0); 2], "{lies:?}");
            assert_eq!(takes(&told([lies, honest(2.0)]), solver.clone()), [Some(2.0); 2]);
        }
        let short = told([honest(2.0), vec![past("solver:3", &[1e-6; 99])], honest(3.0)]);
        assert_eq!(takes(&short, solver), [Some(2.0); 2]);
    }

    #[test]
    fn a_node_that_has_left_says_nothing_more() {
        let mut pasts = told([vec![past("solver:3", &[2.0])], vec![past("solver:3", &[9.0])]]);
        pasts.remove(&"n0".parse().unwrap());
        assert_eq!(takes(&pasts, serde_json::json!({ "image": "solver:3" })), [Some(9.0); 2]);
    }
}
