//! The two layers, and their hand-over to the controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control::clustered::Clustered;
use control::controller::Location;
use control::qos::asked::Edit;
use control::qos::check::Problem;
use control::qos::{Circuit, Policy, PortQueues, Qos, Service};
use driver::Driver;
use net::clock::Clock;
use tokio::sync::Mutex;

use super::locate::{Item, locate};
use super::read::Sources;
use super::tree::{Node, Wrong};

/// The time that the controller has to take a request.
const APPLY_MAX: Duration = Duration::from_secs(5);

/// The requests of both layers.
pub struct Held {
    driver: Arc<Driver<Clustered>>,
    clock: Clock,
    layers: Mutex<Layers>,
}

/// A copy of both.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    pub file: Qos,
    pub api: Qos,
    /// Whether there are VLANs, beside which no request may choose packets.
    has_vlans: bool,
    /// The controller did not say in time whether it has taken a change.
    is_unsure: bool,
}

/// Something that is put in the API's layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    Port(Location, PortQueues),
    Service(Service),
    Policy(Policy),
    Circuit(Circuit),
}

/// One change of the API's layer.
#[derive(Clone, Debug)]
pub enum Op {
    /// Puts an item in the place of one with the same name, with its text.
    Put(Box<Put>, Node),
    Delete(Item),
}

/// The reason why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The item is in the configuration.
    OfTheFile(Item),
    /// The item exists already, and the request was to create it.
    Exists(Item),
    /// There is none.
    Unknown(Item),
    /// The item chooses packets, and there are VLANs.
    BesideVlans(Item),
    Wrong(Vec<Wrong>),
    /// The controller is too busy or at its end.
    Busy,
}

/// Whether it was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Created,
    Replaced,
}

impl Held {
    pub fn new(driver: Arc<Driver<Clustered>>, clock: Clock) -> Held {
        Held {
            driver,
            clock,
            layers: Mutex::default(),
        }
    }

    pub async fn layers(&self) -> Layers {
        self.layers.lock().await.clone()
    }

    /// Takes note whether there are VLANs from now on. Returns false, and changes nothing, if the
    /// API has made something that does not go with them.
    pub async fn set_vlans(&self, has_vlans: bool) -> bool {
        let mut layers = self.layers.lock().await;
        let fits = !(has_vlans && chooses_packets(&layers.api));
        if fits {
            layers.has_vlans = has_vlans;
        }
        fits
    }

    /// Puts what the file says in the place of what it said before.
    pub async fn set_file(&self, file: Qos, sources: &Sources) -> Result<(), Refused> {
        let mut layers = self.layers.lock().await;
        let next = Layers {
            file,
            api: layers.api.clone(),
            has_vlans: layers.has_vlans,
            is_unsure: false,
        };
        let doubles = next.doubles();
        if !doubles.is_empty() {
            let wrong = |item: &Item| Wrong {
                place: sources.place(item),
                text: format!("{item} was made by the API; delete it there first"),
            };
            return Err(Refused::Wrong(doubles.iter().map(wrong).collect()));
        }
        self.replace(&mut layers, next, sources, None).await
    }

    /// Puts one thing into the API's layer; `node` is what was written of it.
    pub async fn put(&self, put: Put, node: Node, is_new: bool) -> Result<Done, Refused> {
        let item = put.item();
        let mut layers = self.layers.lock().await;
        let was_there = contains(&layers.api, &item);
        if was_there && is_new {
            return Err(Refused::Exists(item));
        }
        self.change_in(&mut layers, vec![Op::Put(Box::new(put), node)])
            .await?;
        Ok(match was_there {
            true => Done::Replaced,
            false => Done::Created,
        })
    }

    /// Changes the API's layer in several places, all of them or none.
    pub async fn change(&self, ops: Vec<Op>) -> Result<(), Refused> {
        let mut layers = self.layers.lock().await;
        self.change_in(&mut layers, ops).await
    }

    /// Changes services and policies one by one; any other change takes everything as a whole.
    async fn change_in(&self, layers: &mut Layers, ops: Vec<Op>) -> Result<(), Refused> {
        let mut there: BTreeMap<Item, bool> = BTreeMap::new();
        for op in &ops {
            let item = op.item();
            if contains(&layers.file, &item) {
                return Err(Refused::OfTheFile(item));
            }
            let is_put = matches!(op, Op::Put(..));
            if layers.has_vlans && is_put && !matches!(item, Item::Port(_)) {
                return Err(Refused::BesideVlans(item));
            }
            let was_there = there.insert(item.clone(), is_put);
            let was_there = was_there.unwrap_or_else(|| contains(&layers.api, &item));
            if !is_put && !was_there {
                return Err(Refused::Unknown(item));
            }
        }
        let mut sources = Sources::default();
        let mut circuit = None;
        let edits: Vec<Option<Edit>> = ops.iter().map(Op::edit).collect();
        let changes = ops.into_iter().map(|op| match op {
            Op::Put(put, node) => {
                if let Put::Circuit(asked) = put.as_ref() {
                    circuit = Some(asked.name.clone());
                }
                sources.insert(put.item(), node);
                Change::Put(*put)
            }
            Op::Delete(item) => Change::Delete(item),
        });
        let changes: Vec<Change> = changes.collect();
        let edits: Option<Vec<Edit>> = edits.into_iter().collect();
        match edits.filter(|_| !layers.is_unsure) {
            Some(edits) => self.edit(layers, edits, changes, &sources).await,
            None => {
                let mut next = layers.clone();
                changes
                    .into_iter()
                    .for_each(|change| change.carry_out(&mut next.api));
                self.replace(layers, next, &sources, circuit).await
            }
        }
    }

    async fn edit(
        &self,
        layers: &mut Layers,
        edits: Vec<Edit>,
        changes: Vec<Change>,
        sources: &Sources,
    ) -> Result<(), Refused> {
        let now = self.clock.now();
        let edited = self.ask(layers, move |controller| controller.edit_qos(now, edits));
        let edited = edited.await?;
        let carry_out = |api: &mut Qos| {
            changes.into_iter().for_each(|change| change.carry_out(api));
        };
        match edited {
            Ok(()) => {
                carry_out(&mut layers.api);
                Ok(())
            }
            Err(problems) => {
                let mut next = layers.clone();
                carry_out(&mut next.api);
                Err(wrong(&next.whole(), &problems, sources))
            }
        }
    }

    /// A `circuit` that somebody waits for is refused where it has no room; one that the file says
    /// waits until there is some.
    async fn replace(
        &self,
        layers: &mut Layers,
        mut next: Layers,
        sources: &Sources,
        circuit: Option<String>,
    ) -> Result<(), Refused> {
        let (whole, now) = (next.whole(), self.clock.now());
        let asked = whole.clone();
        let set = self.ask(layers, move |controller| match circuit {
            Some(name) => controller.set_qos_with(now, asked, &name),
            None => controller.set_qos(now, asked),
        });
        set.await?
            .map_err(|problems| wrong(&whole, &problems, sources))?;
        next.is_unsure = false;
        *layers = next;
        Ok(())
    }

    async fn ask<R: Send + 'static>(
        &self,
        layers: &mut Layers,
        question: impl FnOnce(&mut Clustered) -> R + Send + 'static,
    ) -> Result<R, Refused> {
        let answer = tokio::time::timeout(APPLY_MAX, self.driver.ask(question)).await;
        let answer = answer.ok().flatten();
        layers.is_unsure |= answer.is_none();
        answer.ok_or(Refused::Busy)
    }
}

/// Whether any request chooses packets, rather than giving ports queues.
pub fn chooses_packets(qos: &Qos) -> bool {
    let has_flows = !qos.policies.is_empty() || !qos.circuits.is_empty();
    has_flows || !qos.services.is_empty()
}

fn wrong(whole: &Qos, problems: &[Problem], sources: &Sources) -> Refused {
    let locate = |problem: &Problem| locate(whole, problem, sources);
    Refused::Wrong(problems.iter().map(locate).collect())
}

/// A change of a layer.
enum Change {
    Put(Put),
    Delete(Item),
}

impl Change {
    fn carry_out(self, layer: &mut Qos) {
        match self {
            Change::Put(put) => insert(layer, put),
            Change::Delete(item) => remove(layer, &item),
        }
    }
}

impl Layers {
    /// Both together, the file's first.
    pub fn whole(&self) -> Qos {
        let mut whole = self.file.clone();
        let api = self.api.clone();
        whole.ports.extend(api.ports);
        whole.services.extend(api.services);
        whole.policies.extend(api.policies);
        whole.circuits.extend(api.circuits);
        whole
    }

    /// The items that both layers have.
    fn doubles(&self) -> Vec<Item> {
        let items = items(&self.file).into_iter();
        items.filter(|item| contains(&self.api, item)).collect()
    }
}

impl Op {
    fn item(&self) -> Item {
        match self {
            Op::Put(put, _) => put.item(),
            Op::Delete(item) => item.clone(),
        }
    }

    /// `None` if it is about more than services and policies.
    fn edit(&self) -> Option<Edit> {
        match self {
            Op::Put(put, _) => match put.as_ref() {
                Put::Service(service) => Some(Edit::PutService(service.clone())),
                Put::Policy(policy) => Some(Edit::PutPolicy(policy.clone())),
                Put::Port(..) | Put::Circuit(_) => None,
            },
            Op::Delete(Item::Service(name)) => Some(Edit::DeleteService(name.clone())),
            Op::Delete(Item::Policy(name)) => Some(Edit::DeletePolicy(name.clone())),
            Op::Delete(Item::Port(_) | Item::Circuit(_)) => None,
        }
    }
}

impl Put {
    pub fn item(&self) -> Item {
        match self {
            Put::Port(at, _) => Item::Port(*at),
            Put::Service(service) => Item::Service(service.name.clone()),
            Put::Policy(policy) => Item::Policy(policy.name.clone()),
            Put::Circuit(circuit) => Item::Circuit(circuit.name.clone()),
        }
    }
}

fn items(qos: &Qos) -> Vec<Item> {
    let ports = qos.ports.keys().map(|at| Item::Port(*at));
    let services = qos.services.iter().map(|s| Item::Service(s.name.clone()));
    let policies = qos.policies.iter().map(|p| Item::Policy(p.name.clone()));
    let circuits = qos.circuits.iter().map(|c| Item::Circuit(c.name.clone()));
    ports
        .chain(services)
        .chain(policies)
        .chain(circuits)
        .collect()
}

pub fn contains(qos: &Qos, item: &Item) -> bool {
    match item {
        Item::Port(at) => qos.ports.contains_key(at),
        Item::Service(name) => qos.services.iter().any(|s| s.name == *name),
        Item::Policy(name) => qos.policies.iter().any(|p| p.name == *name),
        Item::Circuit(name) => qos.circuits.iter().any(|c| c.name == *name),
    }
}

fn insert(qos: &mut Qos, put: Put) {
    match put {
        Put::Port(at, port) => drop(qos.ports.insert(at, port)),
        Put::Service(service) => {
            let at = qos.services.iter().position(|s| s.name == service.name);
            place(&mut qos.services, at, service);
        }
        Put::Policy(policy) => {
            let at = qos.policies.iter().position(|p| p.name == policy.name);
            place(&mut qos.policies, at, policy);
        }
        Put::Circuit(circuit) => {
            let at = qos.circuits.iter().position(|c| c.name == circuit.name);
            place(&mut qos.circuits, at, circuit);
        }
    }
}

fn place<T>(list: &mut Vec<T>, at: Option<usize>, item: T) {
    match at {
        Some(at) => list[at] = item,
        None => list.push(item),
    }
}

fn remove(qos: &mut Qos, item: &Item) {
    match item {
        Item::Port(at) => drop(qos.ports.remove(at)),
        Item::Service(name) => qos.services.retain(|s| s.name != *name),
        Item::Policy(name) => qos.policies.retain(|p| p.name != *name),
        Item::Circuit(name) => qos.circuits.retain(|c| c.name != *name),
    }
}
