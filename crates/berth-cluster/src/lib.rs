//! Beyond one machine: nodes report, the placer ranks them, the engine places.
//!
//! A node's daemon answers what it knows in a frame that is signed by the node's own key ([`frame`]). The placer asks the nodes its engine
//! knows, keeps the list (`berth_policy::nodes`), and answers whoever wants to place. It keeps nothing that the engine does not: after a
//! restart it reads again what runs where. Docker Swarm and Kubernetes each have a module that speaks their interface.
#![forbid(unsafe_code)]

mod door;
pub mod frame;
pub mod kubernetes;
pub mod node;
pub mod placer;
pub mod swarm;
