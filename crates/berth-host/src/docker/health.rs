//! Which commands in containers are the engine's checks of their health: pure bookkeeping.
//!
//! The engine tells of a check as of any command that somebody runs in a container (`docker exec`); it is known by its command line.
//! Somebody who runs the same is taken for the engine, which makes a hold a little later or earlier the engine's business.

use std::collections::BTreeMap;

use berth_model::ContainerId;
use bollard::models::ContainerConfig;

/// How events begin that tell of a command and name it.
const BEGUN: &str = "exec_create: ";
const OVER: &str = "exec_die";

#[derive(Debug, Default)]
pub struct Health {
    /// By container, as events write it.
    commands: BTreeMap<ContainerId, String>,
    /// The one check under way, by container.
    under_way: BTreeMap<ContainerId, String>,
}

/// What an event tells of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Begun,
    Over,
}

impl Health {
    pub fn described(&mut self, id: &ContainerId, command: Option<String>) {
        match command {
            Some(command) => drop(self.commands.insert(id.clone(), command)),
            None => self.forget(id),
        }
    }

    /// `exec` is the engine's name of the command that is run.
    pub fn heard(&mut self, id: &ContainerId, action: &str, exec: &str) -> Option<Told> {
        if let Some(command) = action.strip_prefix(BEGUN) {
            self.commands.get(id).filter(|check| check.trim() == command.trim())?;
            self.under_way.insert(id.clone(), exec.to_owned());
            return Some(Told::Begun);
        }
        let is_over = action == OVER && self.under_way.get(id).is_some_and(|under_way| under_way == exec);
        is_over.then(|| {
            self.under_way.remove(id);
            Told::Over
        })
    }

    pub fn forget(&mut self, id: &ContainerId) {
        self.commands.remove(id);
        self.under_way.remove(id);
    }
}

/// The command line of a container's health check as events write it; `None` if it has none.
pub fn command(config: &ContainerConfig) -> Option<String> {
    let test = config.healthcheck.as_ref()?.test.as_ref()?;
    let shell = || config.shell.clone().filter(|shell| !shell.is_empty());
    match test.split_first()? {
        (kind, args) if kind == "CMD" => Some(args.join(" ")),
        (kind, args) if kind == "CMD-SHELL" => {
            let shell = shell().unwrap_or_else(|| vec!["/bin/sh".to_owned(), "-c".to_owned()]);
            Some(format!("{} {}", shell.join(" "), args.join(" ")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> ContainerConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_check_is_known_by_its_command_line() {
        let of = |json: &str| command(&config(json));
        assert_eq!(of(r#"{"Healthcheck":{"Test":["CMD-SHELL","true"]}}"#).as_deref(), Some("/bin/sh -c true"));
        assert_eq!(of(r#"{"Healthcheck":{"Test":["CMD","/probe","-v"]}}"#).as_deref(), Some("/probe -v"));
        let bash = r#"{"Shell":["/bin/bash","-ec"],"Healthcheck":{"Test":["CMD-SHELL","true"]}}"#;
        assert_eq!(of(bash).as_deref(), Some("/bin/bash -ec true"));
        assert_eq!(of(r#"{"Healthcheck":{"Test":["NONE"]}}"#), None);
        assert_eq!(of("{}"), None);
    }

    #[test]
    fn what_people_run_in_a_container_is_no_check() {
        let (mut health, id) = (Health::default(), ContainerId("a".into()));
        health.described(&id, Some("/bin/sh -c true".into()));
        assert_eq!(health.heard(&id, "exec_create: /bin/bash", "1"), None);
        assert_eq!(health.heard(&id, "exec_create: /bin/sh -c true", "2"), Some(Told::Begun));
        assert_eq!(health.heard(&id, "exec_die", "1"), None);
        assert_eq!(health.heard(&id, "exec_die", "2"), Some(Told::Over));
        assert_eq!(health.heard(&id, "exec_die", "2"), None, "once");
        assert_eq!(health.heard(&ContainerId("b".into()), "exec_create: /bin/sh -c true", "3"), None);
        health.described(&id, None);
        assert_eq!(health.heard(&id, "exec_create: /bin/sh -c true", "4"), None);
    }
}
