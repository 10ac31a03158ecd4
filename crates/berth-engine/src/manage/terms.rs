//! On what terms a tenant may be held: what the settings and its labels say, and what can be done to it here.

use std::collections::{BTreeMap, BTreeSet};

use berth_host::docker::OWNER_LABEL;
use berth_model::hold::{MEMORY_LABEL, Means};
use berth_model::settings::{Hold, Pattern};
use berth_model::{Bytes, Snapshot, TaskRow, TenantKey};
use berth_policy::Tenant;

use super::{Labels, Manager};

/// What a policy is told about a tenant besides what it does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Terms {
    /// Empty: never held.
    pub means: BTreeSet<Means>,
    /// The rule by which policies leave it alone, in words.
    pub exempt: Option<String>,
    pub gang: Option<String>,
    /// Its Compose project, where those may be gangs and it has not said otherwise.
    pub project: Option<String>,
    pub needs: Option<Bytes>,
    /// Labels that say nothing berth understands, and what would be right.
    pub unread: Vec<String>,
}

/// A tenant as rules name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    pub name: &'a str,
    /// Every name of its owner.
    pub owners: &'a [String],
    pub labels: Option<&'a BTreeMap<String, String>>,
}

/// Never hold this container: `berth.hold=never`.
const HOLD: &str = "berth.hold";
/// Containers that are held and released together: `berth.gang=job-7`.
const GANG: &str = "berth.gang";
/// The project a container was made for by Compose.
const PROJECT: &str = "com.docker.compose.project";

impl Manager {
    pub(super) fn terms_of(
        &self,
        snapshot: &Snapshot,
        labels: &dyn Fn(&TenantKey) -> Labels,
    ) -> BTreeMap<TenantKey, Terms> {
        let rows: BTreeMap<&TenantKey, &TaskRow> = snapshot.tasks.iter().map(|row| (&row.tenant, row)).collect();
        let terms = rows.into_iter().map(|(tenant, row)| {
            let labels = labels(tenant);
            let owners = self.owners_of(row, labels.as_ref());
            let who = Named { name: &row.container_name, owners: &owners, labels: labels.as_ref() };
            (tenant.clone(), terms(who, self.offered(tenant), &self.rules.hold))
        });
        let terms: BTreeMap<TenantKey, Terms> = terms.collect();
        for (tenant, terms) in &terms {
            let told = self.terms.get(tenant).map_or(&[][..], |before| &before.unread);
            for label in terms.unread.iter().filter(|label| !told.contains(label)) {
                tracing::warn!(%tenant, name = self.name(tenant), "a label is not understood: {label}");
            }
        }
        terms
    }

    /// As shown, and by number where no label says whose it is: containers of many people may run as one user.
    pub(crate) fn owners_of(&self, row: &TaskRow, labels: Option<&BTreeMap<String, String>>) -> Vec<String> {
        let is_labelled = labels.and_then(|labels| labels.get(OWNER_LABEL)).is_some_and(|owner| !owner.is_empty());
        let uids = if is_labelled { Vec::new() } else { self.activities.uids_of(&row.tenant) };
        row.owner.iter().cloned().chain(uids.into_iter().flatten().map(|uid| uid.to_string())).collect()
    }
}

/// `offered` is what can and may be done to this tenant.
pub(super) fn terms(who: Named<'_>, offered: BTreeSet<Means>, settings: &Hold) -> Terms {
    let label = |name: &str| who.labels.and_then(|labels| labels.get(name)).filter(|value| !value.is_empty());
    let exempt = exempt(who, settings);
    let gang = label(GANG).cloned();
    Terms {
        means: if exempt.is_some() { BTreeSet::new() } else { offered },
        exempt,
        project: label(PROJECT).filter(|_| settings.compose_gangs && gang.is_none()).cloned(),
        gang,
        needs: label(MEMORY_LABEL).and_then(|text| text.parse().ok()),
        unread: unread(label(HOLD), label(MEMORY_LABEL)),
    }
}

fn unread(hold: Option<&String>, memory: Option<&String>) -> Vec<String> {
    let hold = hold.filter(|text| *text != "never").map(|text| format!("`{HOLD}={text}`: only `never` is known"));
    let is_unread = |text: &&String| text.parse::<Bytes>().is_err();
    let memory = memory.filter(is_unread).map(|text| format!("`{MEMORY_LABEL}={text}`: no amount such as `20GiB`"));
    hold.into_iter().chain(memory).collect()
}

fn exempt(who: Named<'_>, settings: &Hold) -> Option<String> {
    let is_listed = |patterns: &[Pattern], name: &str| patterns.iter().find(|pattern| pattern.matches(name)).cloned();
    let says_never = who.labels.and_then(|labels| labels.get(HOLD)).is_some_and(|value| value == "never");
    if says_never && settings.owners_exempt {
        return Some(format!("its label says `{HOLD}=never`"));
    }
    if let Some(pattern) = is_listed(&settings.never_names, who.name) {
        return Some(format!("`hold.never_names` lists `{pattern}`"));
    }
    let owner = who.owners.iter().find_map(|owner| is_listed(&settings.never_owners, owner));
    owner.map(|pattern| format!("`hold.never_owners` lists `{pattern}`"))
}

/// Makes gangs of Compose projects of one owner no two tenants of which share a GPU. Ranks of one job never do; tenants that
/// do are rivals, whatever their project.
pub(super) fn join_projects(tenants: &mut [Tenant], terms: &BTreeMap<TenantKey, Terms>) {
    let project = |tenant: &Tenant| {
        let project = terms.get(&tenant.key)?.project.clone()?;
        Some((tenant.owner.clone(), project))
    };
    let mut projects: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, tenant) in tenants.iter().enumerate() {
        if let Some(project) = project(tenant) {
            projects.entry(project).or_default().push(index);
        }
    }
    for ((_, project), members) in projects {
        let is_apart = |at: usize| {
            let (member, others) = (members[at], &members[at + 1..]);
            others.iter().all(|other| tenants[member].gpus.is_disjoint(&tenants[*other].gpus))
        };
        if members.len() > 1 && (0..members.len()).all(is_apart) {
            members.iter().for_each(|member| tenants[*member].gang = Some(project.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_model::{GpuIndex, Mono};
    use berth_policy::{Activity, Stand};

    use super::*;

    fn both() -> BTreeSet<Means> {
        BTreeSet::from([Means::Gate, Means::Freeze])
    }

    fn under(settings: &Hold, name: &str, owners: &[&str], labels: &[(&str, &str)]) -> Terms {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let owners: Vec<String> = owners.iter().map(|owner| (*owner).to_owned()).collect();
        terms(Named { name, owners: &owners, labels: Some(&labels) }, both(), settings)
    }

    fn labelled(labels: &[(&str, &str)]) -> Terms {
        under(&Hold::default(), "job", &[], labels)
    }

    #[test]
    fn a_container_says_what_it_needs_and_with_whom_it_goes() {
        let terms = labelled(&[("berth.memory", "20GiB"), ("berth.gang", "job-7")]);
        assert_eq!((terms.needs, terms.gang.as_deref()), (Some(Bytes(20 << 30)), Some("job-7")));
        assert_eq!(terms.means.len(), 2);
    }

    #[test]
    fn a_container_that_says_never_is_never_held() {
        let terms = labelled(&[("berth.hold", "never")]);
        assert_eq!((terms.means.len(), terms.exempt.as_deref()), (0, Some("its label says `berth.hold=never`")));
        assert_eq!(labelled(&[("berth.hold", "perhaps")]).exempt, None);
        let strict = Hold { owners_exempt: false, ..Hold::default() };
        assert_eq!(
            under(&strict, "job", &[], &[("berth.hold", "never")]).exempt,
            None,
            "where that is not theirs to say"
        );
    }

    #[test]
    fn a_label_that_says_nothing_known_is_told_with_what_would_be_right() {
        let terms = labelled(&[("berth.hold", "Never"), ("berth.memory", "-5")]);
        let told = ["`berth.hold=Never`: only `never` is known", "`berth.memory=-5`: no amount such as `20GiB`"];
        assert_eq!((terms.unread.as_slice(), terms.means.len()), (&told.map(str::to_owned)[..], 2));
        assert!(labelled(&[("berth.hold", "never"), ("berth.memory", "20GiB")]).unread.is_empty());
    }

    #[test]
    fn the_settings_name_who_is_never_held_and_the_rule_is_told() {
        let settings = Hold {
            never_names: vec!["db-*".into(), "/system.slice/*".into()],
            never_owners: vec!["ada".into(), "100?".into()],
            ..Hold::default()
        };
        let why = |name: &str, owners: &[&str]| under(&settings, name, owners, &[]).exempt;
        assert_eq!(why("db-7", &["eve"]).as_deref(), Some("`hold.never_names` lists `db-*`"));
        assert_eq!(why("job", &["ada"]).as_deref(), Some("`hold.never_owners` lists `ada`"));
        assert_eq!(why("job", &["eve", "1001"]).as_deref(), Some("`hold.never_owners` lists `100?`"));
        assert!(why("/system.slice/x.service", &[]).is_some() && why("job", &["eve", "2001"]).is_none());
    }

    #[test]
    fn its_own_gang_goes_before_its_project_and_projects_can_be_left_out() {
        let project = ("com.docker.compose.project", "llm");
        assert_eq!(labelled(&[project]).project.as_deref(), Some("llm"));
        assert_eq!(labelled(&[project, ("berth.gang", "job-7")]).project, None);
        let off = Hold { compose_gangs: false, ..Hold::default() };
        assert_eq!(under(&off, "job", &[], &[project]).project, None);
    }

    fn tenant(uid: u32, owner: &str, gpus: &[u32]) -> Tenant {
        Tenant {
            key: TenantKey::User { uid },
            name: uid.to_string(),
            owner: Some(owner.into()),
            gpus: gpus.iter().copied().map(GpuIndex).collect(),
            gang: None,
            arrived: Mono(1),
            activity: Activity::Loading,
            memory: None,
            needs: None,
            core: None,
            stand: Stand::Free,
            means: both(),
            past: None,
            work: None,
        }
    }

    fn gangs(mut tenants: Vec<Tenant>) -> Vec<Option<String>> {
        let terms = Terms { project: Some("llm".into()), ..Terms::default() };
        let terms = tenants.iter().map(|tenant| (tenant.key.clone(), terms.clone())).collect();
        join_projects(&mut tenants, &terms);
        tenants.into_iter().map(|tenant| tenant.gang).collect()
    }

    #[test]
    fn a_project_is_a_gang_where_each_has_gpus_of_its_own() {
        let gang = Some("llm".to_owned());
        assert_eq!(gangs(vec![tenant(1, "ada", &[0]), tenant(2, "ada", &[1, 2])]), [gang.clone(), gang.clone()]);
        assert_eq!(gangs(vec![tenant(1, "ada", &[0]), tenant(2, "ada", &[])]), [gang.clone(), gang], "not known yet");
        assert_eq!(gangs(vec![tenant(1, "ada", &[0]), tenant(2, "ada", &[0])]), [None, None], "they are rivals");
        assert_eq!(gangs(vec![tenant(1, "ada", &[0]), tenant(2, "eve", &[1])]), [None, None], "of two owners");
        assert_eq!(gangs(vec![tenant(1, "ada", &[0])]), [None], "alone");
    }
}
