//! What a cluster needs on this host, where it is set up: a node that can be asked, and a placer that answers.
//!
//! Both are asked as others ask them: a key that does not fit, a port that nobody listens on and a placer that does not act are seen here
//! before somebody wonders why nothing is placed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use berth_cluster::node::key_file::{self, KeyFileError};
use berth_cluster::node::{self, AskError};
use berth_host::levels::{LevelReport, Status, Subject};
use berth_model::Settings;
use berth_model::cluster::api::{Nodes, PlaceRequest};

use crate::asking::ask_placer;
use crate::live;
use crate::node::identity;

const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Nothing where this host is in no cluster.
pub fn check(settings: &Settings) -> Vec<LevelReport> {
    let node = settings.cluster.address().map(|address| (Subject::Node, node(settings, address)));
    let has_placer = settings.placer.socket.exists() || !is_missing(&settings.placer.key_file);
    let placer = has_placer.then(|| (Subject::Placer, placer(settings)));
    let reports = [node, placer].into_iter().flatten();
    reports.map(|(subject, found)| LevelReport { subject, status: status(found) }).collect()
}

fn status(found: Result<String>) -> Status {
    match found {
        Ok(detail) => Status::Available { detail },
        Err(error) => Status::Missing { reason: format!("{error:#}") },
    }
}

fn is_missing(path: &Path) -> bool {
    matches!(key_file::read(path), Err(KeyFileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound)
}

/// The daemon of this host, as the placer asks it: by TCP, with the node's key.
fn node(settings: &Settings, listen: SocketAddr) -> Result<String> {
    let (name, key) = identity(settings)?;
    let address = here(listen);
    let asked = live::runtime()?.block_on(node::ask(address, &name, &key, ANSWERS_WITHIN));
    match asked {
        Ok(told) => Ok(format!("{name} answers on {listen}: its report is {} ms old", told.age.as_millis())),
        Err(error @ AskError::Connect { .. }) => Err(error).context("the daemon does not listen: start it anew"),
        Err(error) => Err(error.into()),
    }
}

/// Whoever listens everywhere does so here.
fn here(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn placer(settings: &Settings) -> Result<String> {
    let path = &settings.placer.key_file;
    // Who may ask the placer may not be allowed to read its key.
    match key_file::cluster(path) {
        Err(KeyFileError::Read { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {}
        read => {
            read?;
        }
    }
    let anything = PlaceRequest::anything();
    let told = ask_placer(settings, |client| async move { client.nodes(&anything).await })??;
    words(&told, &settings.placer.socket)
}

fn words(told: &Nodes, socket: &Path) -> Result<String> {
    let Nodes { engine, idle, nodes, .. } = told;
    let takers = nodes.iter().filter(|node| node.why_not.is_none()).count();
    let all = format!("{takers} of {} nodes of {engine} take a container", nodes.len());
    match idle {
        None => Ok(format!("answers on {}: {all}", socket.display())),
        Some(idle) => bail!("it places nothing: {idle} ({all})"),
    }
}

#[cfg(test)]
mod tests {
    use berth_cluster::frame::{ClusterKey, KEY_BYTES, KeyFile};
    use berth_model::cluster::Strategy;

    use super::*;

    fn settings(dir: &Path) -> Settings {
        let mut settings = Settings::default();
        (settings.placer.socket, settings.placer.key_file) = (dir.join("placer.sock"), dir.join("cluster.key"));
        settings.cluster.key_file = dir.join("node.key");
        settings
    }

    fn reasons(settings: &Settings) -> Vec<(Subject, String)> {
        let reason = |report: LevelReport| match report.status {
            Status::Missing { reason } => (report.subject, reason),
            other => panic!("{other:?}"),
        };
        check(settings).into_iter().map(reason).collect()
    }

    #[test]
    fn a_host_in_no_cluster_is_told_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check(&settings(dir.path())), []);
    }

    #[test]
    fn a_node_without_a_key_and_one_that_nobody_answers_for_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(dir.path());
        // Nobody listens there: the port is one that was just given back.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        settings.cluster.listen = free.to_string();
        let told = reasons(&settings);
        assert!(told[0].0 == Subject::Node && told[0].1.contains("node.key"), "{told:?}");
        let node = "n1".parse().unwrap();
        let key = ClusterKey::new([7; KEY_BYTES]).node(&node);
        key_file::write(&settings.cluster.key_file, &KeyFile::Node { node, key }, false).unwrap();
        let told = reasons(&settings);
        assert!(told[0].1.starts_with("the daemon does not listen"), "{told:?}");
    }

    #[test]
    fn a_placer_whose_key_is_there_must_answer() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let key = KeyFile::Cluster(ClusterKey::new([7; KEY_BYTES]));
        key_file::write(&settings.placer.key_file, &key, false).unwrap();
        let told = reasons(&settings);
        assert!(told[0].0 == Subject::Placer && told[0].1.starts_with("no placer answers"), "{told:?}");
    }

    #[test]
    fn a_placer_that_does_not_act_says_why() {
        let told = Nodes {
            engine: "swarm".into(),
            strategy: Strategy::Fit,
            idle: None,
            nodes: Vec::new(),
            waiting: Vec::new(),
        };
        let socket = Path::new("/run/p.sock");
        assert_eq!(words(&told, socket).unwrap(), "answers on /run/p.sock: 0 of 0 nodes of swarm take a container");
        let idle = Nodes { idle: Some("n1 places".into()), ..told };
        let error = words(&idle, socket).unwrap_err().to_string();
        assert_eq!(error, "it places nothing: n1 places (0 of 0 nodes of swarm take a container)");
    }
}
