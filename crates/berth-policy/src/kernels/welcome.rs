//! Who may begin beside those that run without waiting for a plan.
//!
//! Between two plans lies a look. Where nobody was promised anything and company pays, a newcomer need not wait for it: so where nobody quarrels with anybody,
//! all run at once, as they would without a policy.

use berth_model::settings::KernelSettings;

use super::interference::Trust;
use super::squad::{Choice, MEMBERS, are_compatible};
use super::{Client, Scene};

/// Of those who want nothing now. Nobody of all of them was promised anything, and each gets more done beside each other than after it.
pub(super) fn welcome<'a>(
    scene: &Scene<'a>,
    settings: &KernelSettings,
    choice: &Choice<'a>,
    trust: Trust,
) -> Vec<&'a Client> {
    let mut all: Vec<&Client> = choice.runners.iter().map(|runner| runner.client).collect();
    let runs = all.len();
    if !scene.gpu.concurrent || all.iter().any(|client| client.slo.promises()) {
        return Vec::new();
    }
    let mut idle: Vec<&Client> = scene.clients.iter().filter(|client| !client.busy && !client.slo.promises()).collect();
    idle.sort_by_key(|client| client.id);
    for client in idle {
        let fits = |other: &&Client| are_compatible(scene, settings, client, other, trust);
        if all.len() < MEMBERS && all.iter().all(fits) {
            all.push(client);
        }
    }
    all.split_off(runs)
}

#[cfg(test)]
mod tests {
    use berth_model::Mono;

    use super::super::interference::Phi;
    use super::super::squad::Runner;
    use super::super::testing::{PLACE, job};
    use super::super::{ClientId, CoRun, Learned, Place};
    use super::*;

    /// Who may begin beside the first, which runs, where the first two were seen to slow each other down.
    fn begin(clients: &[Client], gpu: Place) -> Vec<u64> {
        let mut learned = Learned::default();
        for (who, other) in [(1, 2), (2, 1)] {
            let seen = CoRun { who: ClientId(who), share: 0.5, speed: 0.4, beside: vec![(ClientId(other), 0.5)] };
            (0..50).for_each(|_| learned.interference.saw(&seen, Phi::of(&KernelSettings::default())));
        }
        let scene = Scene { now: Mono(0), gpu, clients, learned: &learned };
        let choice = Choice { runners: vec![Runner { client: &clients[0], share: 1.0, speed: 1.0 }], value: 1.0 };
        let welcome = welcome(&scene, &KernelSettings::default(), &choice, Trust::Bold);
        welcome.iter().map(|client| client.id.0).collect()
    }

    #[test]
    fn newcomers_that_get_on_with_all_begin_at_once_unless_something_was_promised() {
        let mut clients = [job(1, 5, 0.4, 0.1), job(2, 5, 1.0, 1.0), job(3, 5, 0.3, 0.1), job(4, 5, 0.4, 0.1)];
        clients[1..].iter_mut().for_each(|client| client.busy = false);
        assert_eq!(begin(&clients, PLACE), [3, 4], "not the second");
        assert_eq!(begin(&clients, Place { concurrent: false, ..PLACE }), [0; 0]);
        clients[3].slo.constraints.apart = true;
        assert_eq!(begin(&clients, PLACE), [3]);
        clients[0].slo.availability = Some("90%".parse().unwrap());
        assert_eq!(begin(&clients, PLACE), [0; 0]);
    }
}
