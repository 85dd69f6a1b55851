//! The two layers, and their hand-over to the controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control::clustered::Clustered;
use control::controller::Location;
use control::flows::parts::{PartEdit, PartName, PartProblem, StaticPart};
use control::flows::{FlowEdit, FlowName, FlowProblem, StaticEntry};
use control::qos::asked::Edit;
use control::qos::check::Problem;
use control::qos::{Circuit, Meter, Policy, PortQueues, Qos, Service};
use driver::Driver;
use net::clock::Clock;
use openflow::DatapathId;
use tokio::sync::Mutex;

use super::fit::{self, Fitted};
use super::locate::{Item, locate};
use super::read::Sources;
use super::tree::{Node, Place, Wrong};
use crate::layout::Layout;

/// The time that the controller has to take a request.
const APPLY_MAX: Duration = Duration::from_secs(5);

/// The requests of both layers.
pub struct Held {
    driver: Arc<Driver<Clustered>>,
    clock: Clock,
    layers: Mutex<Layers>,
}

/// A copy of both layers.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    pub file: Qos,
    pub api: Qos,
    /// Meters that the API keeps for rules to name, by switch and number. A switch has a meter only
    /// once a rule names it.
    pub meters: BTreeMap<(DatapathId, u32), Meter>,
    /// Whether there are VLANs, beside which no request may choose packets.
    has_vlans: bool,
    /// Whether auster forwards nothing, so that no request may choose packets.
    has_no_forwarding: bool,
    /// Whether it is unknown if a change was made: the controller did not answer in time.
    is_unsure: bool,
}

/// An item put in the API's layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    Port(Location, PortQueues),
    Service(Service),
    Policy(Policy),
    Circuit(Circuit),
    Meter(DatapathId, u32, Meter),
    Part(PartName, Box<StaticPart>),
    /// A static entry that lasts.
    Flow(FlowName, Box<StaticEntry>),
    /// Kept for the dashboard alone: no layer has it, and the controller never sees it.
    Layout(Layout),
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
    /// There is no such item.
    Unknown(Item),
    /// The item chooses packets, and there are VLANs.
    BesideVlans(Item),
    /// The item chooses packets, and auster forwards none.
    NotForwarding(Item),
    Wrong(Vec<Wrong>),
    /// The item has changed since the client last saw it.
    Stale(Item),
    /// The item cannot be stored at the moment, for this reason.
    Away(String),
    /// There is no room to store the item.
    Full(String),
    /// The item is too large to be stored, or there is too much at once.
    TooLarge(String),
    /// Some documents were put, and the ones after them were refused.
    Halfway {
        done: usize,
        of: usize,
        why: Box<Refused>,
    },
    /// The controller is too busy or is stopping.
    Busy,
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

    /// Notes whether there are VLANs from now on. Returns false, and changes nothing, if the API
    /// has requests that do not work with VLANs.
    pub async fn set_vlans(&self, has_vlans: bool) -> bool {
        let mut layers = self.layers.lock().await;
        let fits = !(has_vlans && chooses_packets(&layers.api));
        if fits {
            layers.has_vlans = has_vlans;
        }
        fits
    }

    /// Notes that packets are not forwarded: services, policies and circuits are refused.
    pub async fn set_not_forwarding(&self) {
        self.layers.lock().await.has_no_forwarding = true;
    }

    /// Replaces the requests of the previous file by those of `file`.
    pub async fn set_file(&self, file: Qos, sources: &Sources) -> Result<(), Refused> {
        let mut layers = self.layers.lock().await;
        let next = Layers {
            file,
            is_unsure: false,
            ..layers.clone()
        };
        let doubles = next.doubles();
        if !doubles.is_empty() {
            let wrong = |item: &Item| Wrong {
                place: sources.place(item),
                text: format!("{item} was made by the API; delete it there first"),
            };
            return Err(Refused::Wrong(doubles.iter().map(wrong).collect()));
        }
        self.replace(&mut layers, next, sources).await
    }

    /// Whether [`Held::change`] would accept these changes. Also checks that a circuit being put
    /// has room; a circuit accepted earlier waits until there is room.
    pub async fn check(&self, ops: &[Op]) -> Result<(), Refused> {
        let mut layers = self.layers.lock().await;
        let (stated, others) = split(ops);
        self.check_stated(&mut layers, &stated).await?;
        if others.is_empty() {
            return Ok(());
        }
        let ops = &others[..];
        layers.allow(ops)?;
        let checked = match edits(ops).filter(|_| !layers.is_unsure) {
            Some(edits) => {
                let asked = self.ask(&mut layers, |controller| controller.check_edit_qos(edits));
                asked.await?
            }
            None => {
                let (whole, circuit) = (layers.after(ops).whole(), circuit(ops));
                let asked = self.ask(&mut layers, move |controller| {
                    controller.check_qos(&whole, circuit.as_deref())
                });
                asked.await?
            }
        };
        checked.map_err(|problems| wrong(&layers.after(ops).whole(), &problems, &sources(ops)))
    }

    /// Changes several items of the API's layer, all of them or none. Services and policies are
    /// changed one by one; any other change sets everything as a whole.
    pub async fn change(&self, ops: &[Op]) -> Result<(), Refused> {
        let mut layers = self.layers.lock().await;
        let (stated, others) = split(ops);
        if !others.is_empty() {
            self.change_others(&mut layers, &others).await?;
        }
        match stated.is_empty() {
            true => Ok(()),
            false => self.edit_stated(&mut layers, &stated).await.map(drop),
        }
    }

    /// Changes static entries at once, without keeping them. Returns the number of these entries
    /// that existed before.
    pub async fn change_flows(&self, ops: &[Op]) -> Result<usize, Refused> {
        let mut layers = self.layers.lock().await;
        self.edit_stated(&mut layers, ops).await
    }

    /// Whether all of these could be changed.
    async fn check_stated(&self, layers: &mut Layers, ops: &[Op]) -> Result<(), Refused> {
        if ops.is_empty() {
            return Ok(());
        }
        let (parts, flows) = edits_of_stated(ops);
        let checked = self.ask(layers, move |controller| {
            let no_part = parts.iter().find_map(|edit| match edit {
                PartEdit::Delete(name) => (!controller.has_stated(name)).then_some(name),
                PartEdit::Put(..) => None,
            });
            let no_flow = flows.iter().find_map(|edit| match edit {
                FlowEdit::Delete(name) => {
                    controller.is_lasting_flow(name).is_none().then_some(name)
                }
                FlowEdit::Put(..) => None,
            });
            let unknown = no_part.map(|name| Item::Part(name.clone()));
            let unknown = unknown.or_else(|| no_flow.map(|name| Item::Flow(name.clone())));
            (unknown, controller.check_stated(&parts, &flows))
        });
        match checked.await? {
            (Some(item), _) => Err(Refused::Unknown(item)),
            (None, (parts, flows)) if parts.is_empty() && flows.is_empty() => Ok(()),
            (None, problems) => Err(wrong_stated(problems, ops)),
        }
    }

    async fn edit_stated(&self, layers: &mut Layers, ops: &[Op]) -> Result<usize, Refused> {
        let (parts, flows) = edits_of_stated(ops);
        let now = self.clock.now();
        let edited = self.ask(layers, move |controller| {
            let is_there = |edit: &&FlowEdit| controller.is_lasting_flow(edit.name()).is_some();
            let there = flows.iter().filter(is_there).count();
            let edited = controller.edit_stated(now, parts, flows);
            edited.map(|()| there)
        });
        edited
            .await?
            .map_err(|problems| wrong_stated(problems, ops))
    }

    async fn change_others(&self, layers: &mut Layers, ops: &[Op]) -> Result<(), Refused> {
        layers.allow(ops)?;
        let edits = edits(ops).filter(|_| !layers.is_unsure);
        let Some(edits) = edits else {
            let next = layers.after(ops);
            return self.replace(layers, next, &sources(ops)).await;
        };
        let now = self.clock.now();
        let edited = self.ask(layers, move |controller| controller.edit_qos(now, edits));
        match edited.await? {
            Ok(()) => {
                ops.iter().for_each(|op| layers.carry_out(op));
                Ok(())
            }
            Err(problems) => Err(wrong(&layers.after(ops).whole(), &problems, &sources(ops))),
        }
    }

    /// Replaces the API's layer by the items that fit. Returns the others, each with the reason.
    pub async fn fit(&self, mut puts: Vec<Put>) -> Result<Vec<(Item, String)>, Refused> {
        let mut layers = self.layers.lock().await;
        let (mut parts, mut flows, now) = (Vec::new(), Vec::new(), self.clock.now());
        for put in puts.extract_if(.., |put| !put.is_layered()) {
            match put {
                Put::Part(name, part) => parts.push((name, *part)),
                Put::Flow(name, entry) => flows.push((name, *entry)),
                _ => {}
            }
        }
        let network = self.ask(&mut layers, |controller| controller.qos_network());
        let network = network.await?;
        let (file, unfit) = (layers.file.clone(), layers.unfit());
        let fitted = tokio::task::spawn_blocking(move || {
            fit::fit(&file, unfit, puts, &|qos| qos.check(&network))
        });
        let Ok(Fitted {
            api,
            meters,
            mut left_out,
        }) = fitted.await
        else {
            return Err(Refused::Busy);
        };
        let next = Layers {
            api,
            meters,
            ..layers.clone()
        };
        self.replace(&mut layers, next, &Sources::default()).await?;
        let fitted = self.ask(&mut layers, move |controller| {
            controller.fit_stated(now, parts, flows)
        });
        let (parts, flows) = fitted.await?;
        let parts = parts.into_iter();
        left_out.extend(parts.map(|(name, why)| (Item::Part(name), why)));
        let flows = flows.into_iter();
        left_out.extend(flows.map(|(name, why)| (Item::Flow(name), why)));
        Ok(left_out)
    }

    async fn replace(
        &self,
        layers: &mut Layers,
        mut next: Layers,
        sources: &Sources,
    ) -> Result<(), Refused> {
        let (whole, now) = (next.whole(), self.clock.now());
        let asked = whole.clone();
        let set = self.ask(layers, move |controller| controller.set_qos(now, asked));
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
        // Unsure until the answer: even if this task is ended, the controller may have taken the
        // request.
        let was_unsure = std::mem::replace(&mut layers.is_unsure, true);
        let answer = tokio::time::timeout(APPLY_MAX, self.driver.ask(question)).await;
        let answer = answer.ok().flatten();
        layers.is_unsure = was_unsure || answer.is_none();
        answer.ok_or(Refused::Busy)
    }
}

/// Whether any request chooses packets, rather than giving ports queues.
pub fn chooses_packets(qos: &Qos) -> bool {
    let has_flows = !qos.policies.is_empty() || !qos.circuits.is_empty();
    has_flows || !qos.services.is_empty()
}

/// Whether an item chooses packets.
pub fn chooses(item: &Item) -> bool {
    matches!(item, Item::Service(_) | Item::Policy(_) | Item::Circuit(_))
}

/// Separates changes of static items from those of the layers. A layout is neither.
fn split(ops: &[Op]) -> (Vec<Op>, Vec<Op>) {
    let ops = ops.iter().filter(|op| op.item() != Item::Layout).cloned();
    ops.partition(|op| matches!(op.item(), Item::Part(_) | Item::Flow(_)))
}

fn edits_of_stated(ops: &[Op]) -> (Vec<PartEdit>, Vec<FlowEdit>) {
    let parts = ops.iter().filter_map(Op::part_edit).collect();
    (parts, ops.iter().filter_map(Op::flow_edit).collect())
}

/// The problems of static items, by the fields of their texts.
fn wrong_stated((parts, flows): (Vec<PartProblem>, Vec<FlowProblem>), ops: &[Op]) -> Refused {
    let wrong = |item: Item, key: &str, text: String| {
        let node = ops.iter().find_map(|op| match op {
            Op::Put(put, node) if put.item() == item => Some(node),
            _ => None,
        });
        let field = node.and_then(|node| node.get(key)).or(node);
        let text = match (field, key.is_empty()) {
            (Some(_), true) => text,
            (Some(_), false) => format!("{key}: {text}"),
            (None, true) => format!("{item}: {text}"),
            (None, false) => format!("{item}: {key}: {text}"),
        };
        let place = field.map_or_else(Place::default, |field| field.place.clone());
        Wrong { place, text }
    };
    let parts = parts.into_iter().map(|problem| {
        let PartProblem { name, field, text } = problem;
        wrong(Item::Part(name), field, text)
    });
    let flows = flows.into_iter().map(|problem| {
        let FlowProblem { name, field, text } = problem;
        wrong(Item::Flow(name), field, text)
    });
    Refused::Wrong(parts.chain(flows).collect())
}

fn wrong(whole: &Qos, problems: &[Problem], sources: &Sources) -> Refused {
    let locate = |problem: &Problem| locate(whole, problem, sources);
    Refused::Wrong(problems.iter().map(locate).collect())
}

/// The changes as edits of services and policies; `None` if there are other changes.
fn edits(ops: &[Op]) -> Option<Vec<Edit>> {
    let others = ops
        .iter()
        .filter(|op| !matches!(op.item(), Item::Meter(..)));
    others.map(Op::edit).collect()
}

/// The circuit among the items being put.
fn circuit(ops: &[Op]) -> Option<String> {
    ops.iter().find_map(|op| match (op, op.item()) {
        (Op::Put(..), Item::Circuit(name)) => Some(name),
        _ => None,
    })
}

fn sources(ops: &[Op]) -> Sources {
    let mut sources = Sources::default();
    for op in ops {
        if let Op::Put(put, node) = op {
            sources.insert(put.item(), node.clone());
        }
    }
    sources
}

impl Layers {
    /// Both layers together, the file's first.
    pub fn whole(&self) -> Qos {
        let mut whole = self.file.clone();
        let api = self.api.clone();
        whole.ports.extend(api.ports);
        whole.services.extend(api.services);
        whole.policies.extend(api.policies);
        whole.circuits.extend(api.circuits);
        whole
    }

    /// Whether the API's layer has the item.
    pub fn has(&self, item: &Item) -> bool {
        match item {
            Item::Meter(dpid, id) => self.meters.contains_key(&(*dpid, *id)),
            item => contains(&self.api, item),
        }
    }

    /// The reason why nothing may choose packets, if there is one.
    fn unfit(&self) -> Option<&'static str> {
        match (self.has_vlans, self.has_no_forwarding) {
            (true, _) => {
                Some("it chooses packets without their VLAN, and the configuration has VLANs")
            }
            (false, true) => Some("it chooses packets of auster's forwarding, which is off"),
            (false, false) => None,
        }
    }

    /// Refuses changes of items that are not in the API's layer, or do not exist.
    fn allow(&self, ops: &[Op]) -> Result<(), Refused> {
        let mut there: BTreeMap<Item, bool> = BTreeMap::new();
        for op in ops {
            let item = op.item();
            if contains(&self.file, &item) {
                return Err(Refused::OfTheFile(item));
            }
            let is_put = matches!(op, Op::Put(..));
            if self.has_vlans && is_put && chooses(&item) {
                return Err(Refused::BesideVlans(item));
            }
            if self.has_no_forwarding && is_put && chooses(&item) {
                return Err(Refused::NotForwarding(item));
            }
            let was_there = there.insert(item.clone(), is_put);
            let was_there = was_there.unwrap_or_else(|| self.has(&item));
            if !is_put && !was_there {
                return Err(Refused::Unknown(item));
            }
        }
        Ok(())
    }

    fn after(&self, ops: &[Op]) -> Layers {
        let mut next = self.clone();
        ops.iter().for_each(|op| next.carry_out(op));
        next
    }

    fn carry_out(&mut self, op: &Op) {
        match op {
            Op::Put(put, _) => match put.as_ref() {
                Put::Meter(dpid, id, meter) => drop(self.meters.insert((*dpid, *id), *meter)),
                put => insert(&mut self.api, put.clone()),
            },
            Op::Delete(Item::Meter(dpid, id)) => drop(self.meters.remove(&(*dpid, *id))),
            Op::Delete(item) => remove(&mut self.api, item),
        }
    }

    /// The items in both layers.
    fn doubles(&self) -> Vec<Item> {
        let items = items(&self.file).into_iter();
        items.filter(|item| contains(&self.api, item)).collect()
    }
}

impl Op {
    pub fn item(&self) -> Item {
        match self {
            Op::Put(put, _) => put.item(),
            Op::Delete(item) => item.clone(),
        }
    }

    /// `None` if the change is not about a service or policy.
    fn edit(&self) -> Option<Edit> {
        match self {
            Op::Put(put, _) => match put.as_ref() {
                Put::Service(service) => Some(Edit::PutService(service.clone())),
                Put::Policy(policy) => Some(Edit::PutPolicy(policy.clone())),
                _ => None,
            },
            Op::Delete(Item::Service(name)) => Some(Edit::DeleteService(name.clone())),
            Op::Delete(Item::Policy(name)) => Some(Edit::DeletePolicy(name.clone())),
            Op::Delete(_) => None,
        }
    }

    fn part_edit(&self) -> Option<PartEdit> {
        match self {
            Op::Put(put, _) => match put.as_ref() {
                Put::Part(name, part) => Some(PartEdit::Put(name.clone(), part.clone())),
                _ => None,
            },
            Op::Delete(Item::Part(name)) => Some(PartEdit::Delete(name.clone())),
            Op::Delete(_) => None,
        }
    }

    fn flow_edit(&self) -> Option<FlowEdit> {
        match self {
            Op::Put(put, _) => match put.as_ref() {
                Put::Flow(name, entry) => Some(FlowEdit::Put(name.clone(), entry.clone())),
                _ => None,
            },
            Op::Delete(Item::Flow(name)) => Some(FlowEdit::Delete(name.clone())),
            Op::Delete(_) => None,
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
            Put::Meter(dpid, id, _) => Item::Meter(*dpid, *id),
            Put::Part(name, _) => Item::Part(name.clone()),
            Put::Flow(name, _) => Item::Flow(name.clone()),
            Put::Layout(_) => Item::Layout,
        }
    }

    /// Whether the item is in the API's layer.
    fn is_layered(&self) -> bool {
        !matches!(self, Put::Part(..) | Put::Flow(..) | Put::Layout(_))
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
        Item::Meter(..) | Item::Part(_) | Item::Flow(_) | Item::Layout => false,
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
        Put::Meter(..) | Put::Part(..) | Put::Flow(..) | Put::Layout(_) => {}
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
        Item::Meter(..) | Item::Part(_) | Item::Flow(_) | Item::Layout => {}
    }
}
