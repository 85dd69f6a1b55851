//! The demanded services and policies, kept so that each change is checked and planned on its own.

use std::collections::{BTreeMap, BTreeSet};

use super::odds::Odds;
use super::plan::Former;
use super::{On, Policy, Qos, Service};
use crate::timeouts::HostName;

/// One change of a service or a policy. A new service or policy replaces the one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    PutService(Service),
    PutPolicy(Policy),
    DeleteService(String),
    DeletePolicy(String),
}

/// Places in the lists of a [`Qos`], by name; the first of two with one name.
#[derive(Clone, Debug, Default)]
pub struct Names {
    services: BTreeMap<String, usize>,
    policies: BTreeMap<String, usize>,
}

/// A [`Qos`] with its indexes.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    qos: Qos,
    names: Names,
    /// Policies by their service.
    users: BTreeMap<String, BTreeSet<String>>,
    odds: Odds<String>,
    /// The number of policies and circuits that name each host.
    ends: BTreeMap<HostName, usize>,
}

/// The reverse of a change.
pub enum Undo {
    Service(usize, Put<Service>),
    Policy(usize, Put<Policy>),
}

/// The change that restores a place in a list.
pub enum Put<T> {
    Nothing,
    Instead(T),
    Between(T),
}

/// The services and policies that a change concerns, by name.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub services: BTreeSet<String>,
    pub policies: BTreeSet<String>,
}

impl Names {
    pub fn of(qos: &Qos) -> Names {
        Names {
            services: places(qos.services.iter().map(|service| &service.name)),
            policies: places(qos.policies.iter().map(|policy| &policy.name)),
        }
    }

    pub fn service<'a>(&self, qos: &'a Qos, name: &str) -> Option<&'a Service> {
        qos.services.get(*self.services.get(name)?)
    }

    pub fn policy<'a>(&self, qos: &'a Qos, name: &str) -> Option<&'a Policy> {
        qos.policies.get(self.policy_place(name)?)
    }

    pub fn service_place(&self, name: &str) -> Option<usize> {
        self.services.get(name).copied()
    }

    pub fn policy_place(&self, name: &str) -> Option<usize> {
        self.policies.get(name).copied()
    }
}

impl Asked {
    pub fn new(qos: Qos) -> Asked {
        let mut asked = Asked {
            names: Names::of(&qos),
            qos,
            ..Asked::default()
        };
        for circuit in &asked.qos.circuits {
            for end in [circuit.from, circuit.to] {
                *asked.ends.entry(end).or_default() += 1;
            }
        }
        for policy in &asked.qos.policies {
            note_policy(&mut asked.users, &mut asked.ends, policy);
            let service = asked.names.service(&asked.qos, &policy.service);
            note_odds(&mut asked.odds, policy, service);
        }
        asked
    }

    pub fn qos(&self) -> &Qos {
        &self.qos
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    pub fn odds(&mut self) -> &mut Odds<String> {
        &mut self.odds
    }

    pub fn ends(&self) -> &BTreeMap<HostName, usize> {
        &self.ends
    }

    /// The scope of a change. A change of a service concerns its policies.
    pub fn scope(&self, edit: &Edit) -> Scope {
        let of_service = |name: &String| Scope {
            services: BTreeSet::from([name.clone()]),
            policies: self.users.get(name).cloned().unwrap_or_default(),
        };
        let of_policy = |name: &String| Scope {
            policies: BTreeSet::from([name.clone()]),
            ..Scope::default()
        };
        match edit {
            Edit::PutService(service) => of_service(&service.name),
            Edit::DeleteService(name) => of_service(name),
            Edit::PutPolicy(policy) => of_policy(&policy.name),
            Edit::DeletePolicy(name) => of_policy(name),
        }
    }

    /// A policy in its present form, with its service.
    pub fn former(&self, name: &str) -> Former {
        let policy = self.names.policy(&self.qos, name)?;
        let service = self.names.service(&self.qos, &policy.service);
        Some((policy.clone(), service.cloned()))
    }

    /// Applies a change. Returns `None` if it changes nothing.
    pub fn apply(&mut self, edit: Edit) -> Option<Undo> {
        match edit {
            Edit::PutService(service) => match self.names.service_place(&service.name) {
                Some(at) if self.qos.services[at] == service => None,
                Some(at) => Some(self.put_service(at, Put::Instead(service))),
                None => Some(self.put_service(self.qos.services.len(), Put::Between(service))),
            },
            Edit::DeleteService(name) => {
                let at = self.names.service_place(&name)?;
                Some(self.put_service(at, Put::Nothing))
            }
            Edit::PutPolicy(policy) => match self.names.policy_place(&policy.name) {
                Some(at) if self.qos.policies[at] == policy => None,
                Some(at) => Some(self.put_policy(at, Put::Instead(policy))),
                None => Some(self.put_policy(self.qos.policies.len(), Put::Between(policy))),
            },
            Edit::DeletePolicy(name) => {
                let at = self.names.policy_place(&name)?;
                Some(self.put_policy(at, Put::Nothing))
            }
        }
    }

    /// Reverses a change. Reverse the latest change first.
    pub fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Service(at, put) => drop(self.put_service(at, put)),
            Undo::Policy(at, put) => drop(self.put_policy(at, put)),
        }
    }

    fn put_service(&mut self, at: usize, put: Put<Service>) -> Undo {
        let name = match &put {
            Put::Instead(service) | Put::Between(service) => service.name.clone(),
            Put::Nothing => self.qos.services[at].name.clone(),
        };
        let back = put_at(&mut self.qos.services, &mut self.names.services, at, put);
        let users = self.users.get(&name).into_iter().flatten();
        for policy in users.filter_map(|name| self.names.policy(&self.qos, name)) {
            let service = self.names.service(&self.qos, &name);
            note_odds(&mut self.odds, policy, service);
        }
        Undo::Service(at, back)
    }

    fn put_policy(&mut self, at: usize, put: Put<Policy>) -> Undo {
        let comes = match &put {
            Put::Instead(policy) | Put::Between(policy) => Some(policy.name.clone()),
            Put::Nothing => None,
        };
        let back = put_at(&mut self.qos.policies, &mut self.names.policies, at, put);
        if let Put::Instead(policy) | Put::Between(policy) = &back {
            self.forget(policy.clone());
        }
        if let Some(policy) = comes.and_then(|name| self.names.policy(&self.qos, &name)) {
            note_policy(&mut self.users, &mut self.ends, policy);
            let service = self.names.service(&self.qos, &policy.service);
            note_odds(&mut self.odds, policy, service);
        }
        Undo::Policy(at, back)
    }

    fn forget(&mut self, policy: Policy) {
        self.odds.remove(&policy.name);
        if let Some(users) = self.users.get_mut(&policy.service) {
            users.remove(&policy.name);
            if users.is_empty() {
                self.users.remove(&policy.service);
            }
        }
        for end in ends_of(&policy) {
            if let Some(count) = self.ends.get_mut(&end) {
                *count -= 1;
                if *count == 0 {
                    self.ends.remove(&end);
                }
            }
        }
    }
}

fn places<'a>(names: impl Iterator<Item = &'a String>) -> BTreeMap<String, usize> {
    let mut places = BTreeMap::new();
    for (n, name) in names.enumerate() {
        places.entry(name.clone()).or_insert(n);
    }
    places
}

trait Named {
    fn name(&self) -> &String;
}

impl Named for Service {
    fn name(&self) -> &String {
        &self.name
    }
}

impl Named for Policy {
    fn name(&self) -> &String {
        &self.name
    }
}

/// Changes a list, and returns the reverse of the change.
fn put_at<T: Named>(
    list: &mut Vec<T>,
    places: &mut BTreeMap<String, usize>,
    at: usize,
    put: Put<T>,
) -> Put<T> {
    let shift = |places: &mut BTreeMap<String, usize>, by: isize| {
        for place in places.values_mut().filter(|place| **place >= at) {
            *place = place.saturating_add_signed(by);
        }
    };
    match put {
        Put::Nothing => {
            let old = list.remove(at);
            places.remove(old.name());
            shift(places, -1);
            Put::Between(old)
        }
        Put::Instead(item) => Put::Instead(std::mem::replace(&mut list[at], item)),
        Put::Between(item) => {
            if at < list.len() {
                shift(places, 1);
            }
            places.insert(item.name().clone(), at);
            list.insert(at, item);
            Put::Nothing
        }
    }
}

fn ends_of(policy: &Policy) -> Vec<HostName> {
    match policy.on {
        On::Path { from, to } => vec![from, to],
        _ => Vec::new(),
    }
}

fn note_policy(
    users: &mut BTreeMap<String, BTreeSet<String>>,
    ends: &mut BTreeMap<HostName, usize>,
    policy: &Policy,
) {
    let of_service = users.entry(policy.service.clone()).or_default();
    of_service.insert(policy.name.clone());
    for end in ends_of(policy) {
        *ends.entry(end).or_default() += 1;
    }
}

fn note_odds(odds: &mut Odds<String>, policy: &Policy, service: Option<&Service>) {
    match service {
        Some(service) => {
            let matchings = service.matchings(policy.on.ends(), false);
            odds.insert_policy(policy.name.clone(), policy, matchings);
        }
        None => odds.remove(&policy.name),
    }
}
