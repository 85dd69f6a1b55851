//! Changes that a switch makes as a whole or not at all: bundles of OpenFlow 1.4, and of 1.3 with
//! an extension of the ONF.
//!
//! Messages between [`Outbox::begin_change`] and [`Outbox::end_change`] form one change on each
//! switch. Two or more messages are sent as a bundle: the switch opens it, receives them, and
//! carries all of them out at once. Later messages wait until the bundle is over, so that none
//! overtakes it. Requests, and messages that bundles cannot contain, end a change and begin the
//! next.
//!
//! A switch that has no bundles, or refuses one, receives the same messages one by one, under the
//! same xids. So their errors reach whoever waits for them. Errors of single messages of a bundle
//! are kept until its end: if it is refused, the same messages cause the same errors again.
//!
//! The first bundle of a connection waits until the switch has opened it. A barrier follows this
//! opening, and every commit. A switch that answers only the barrier has ignored the message; the
//! bundle times out with the barrier. Further bundles are written at once, so that they are as fast
//! as their messages alone.

use std::collections::BTreeMap;

use openflow::message::{BundleCommand, BundleControl, BundleFlags, ErrorMessage, Experimenter};
use openflow::{DatapathId, ErrorKind, Frame, Message, Version, Xid, bundle_add, encode};

use super::pipe::{Item, Pipe, Queued};
use super::{Event, Outbox};

/// Maximum number of messages in one bundle. A larger change is several bundles, in order.
pub(super) const MEMBERS_MAX: usize = 4096;

/// Bytes that a bundle adds to each of its messages.
const OVERHEAD: usize = 24;

const FLAGS: BundleFlags = BundleFlags(BundleFlags::ATOMIC.0 | BundleFlags::ORDERED.0);

/// The support for bundles that a switch has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ability {
    /// Nothing is known on this connection.
    #[default]
    Unknown,
    /// It has opened one.
    Able,
    /// It has refused to open one on this connection, or the last one ended during a bundle.
    Unable,
    /// It has not answered a commit, so that its entries were unknown.
    Silent,
}

impl Ability {
    fn is_promising(self) -> bool {
        matches!(self, Ability::Unknown | Ability::Able)
    }
}

/// A bundle under way: its messages and its progress.
pub(super) struct Bundle {
    /// The message that opens it. Its xid is the bundle's id, too: a process before this one may
    /// have left a bundle open on this connection.
    open: Xid,
    members: Vec<Queued>,
    /// The positions of the messages in `members`.
    places: BTreeMap<Xid, usize>,
    step: Step,
    /// Messages in it that the switch has refused. The errors name the messages as if they had been
    /// sent alone.
    refused: BTreeMap<Xid, ErrorMessage>,
}

/// `fence` is the barrier behind the message.
enum Step {
    Opening {
        fence: Option<Xid>,
    },
    /// The number of messages already written.
    Adding {
        count: usize,
    },
    Committing {
        xid: Xid,
        fence: Option<Xid>,
    },
}

/// Whether a message can be part of a bundle. Open vSwitch accepts no meters in one.
pub(super) fn can_hold(message: &Message, frame: &Frame) -> bool {
    let is_of_kind = matches!(
        message,
        Message::FlowMod(_) | Message::GroupMod(_) | Message::PortMod(_)
    );
    is_of_kind && frame.len() + OVERHEAD <= openflow::frame::FRAME_LEN_MAX
}

/// Whether an error is about bundles, and not about the message itself: OFPET_BUNDLE_FAILED of
/// 1.4, and the errors of the ONF's extension.
fn is_about_bundles(error: &ErrorMessage) -> bool {
    let of_onf = error.experimenter == Some(Experimenter::ONF);
    error.kind.ty == 17 || of_onf && (2300..2350).contains(&error.kind.code)
}

impl Bundle {
    /// The number of messages not yet written.
    pub(super) fn left(&self) -> usize {
        match self.step {
            Step::Opening { .. } => self.members.len(),
            Step::Adding { count } => self.members.len() - count,
            Step::Committing { .. } => 0,
        }
    }

    /// The position of the first message: no message is carried out before the end of the bundle.
    pub(super) fn position(&self) -> u64 {
        self.members.first().map_or(0, |first| first.position)
    }

    fn id(&self) -> u32 {
        self.open.0
    }

    fn control(&self, command: BundleCommand) -> Message {
        Message::BundleControl(BundleControl {
            bundle_id: self.id(),
            command,
            flags: FLAGS,
            properties: Vec::new(),
        })
    }

    fn set_fence(&mut self, barrier: Option<Xid>) {
        if let Step::Opening { fence } | Step::Committing { fence, .. } = &mut self.step {
            *fence = barrier;
        }
    }
}

impl Pipe {
    /// Adds a message to the change under construction.
    pub(super) fn take_member(&mut self, member: Queued) {
        if self.change.len() >= MEMBERS_MAX {
            self.seal();
        }
        self.change.push(member);
    }

    /// Ends the change under construction: later messages follow it.
    pub(super) fn seal(&mut self) {
        let mut members = std::mem::take(&mut self.change);
        let item = match members.len() {
            0 => return,
            1 => members.pop().map(Item::Message),
            _ => Some(Item::Change(members)),
        };
        self.queue.extend(item);
    }

    /// Puts messages that are not to be sent as a bundle at the front of the queue.
    fn spill(&mut self, members: Vec<Queued>) {
        self.queued += members.len();
        for member in members.into_iter().rev() {
            self.queue.push_front(Item::Message(member));
        }
    }

    fn begin(&mut self, xid: Xid, members: Vec<Queued>) -> &mut Bundle {
        self.bundle.insert(Bundle {
            places: members.iter().map(|it| it.frame.xid()).zip(0..).collect(),
            open: xid,
            members,
            step: match self.ability {
                Ability::Able => Step::Adding { count: 0 },
                _ => Step::Opening { fence: None },
            },
            refused: BTreeMap::new(),
        })
    }
}

impl Outbox {
    /// Begins a change on each switch, of all messages sent from now on. The outermost of nested
    /// changes counts.
    pub(in crate::controller) fn begin_change(&mut self) {
        self.changes_open += 1;
    }

    pub(in crate::controller) fn end_change(&mut self) {
        self.changes_open = self.changes_open.saturating_sub(1);
        if self.changes_open == 0 {
            self.seal_all();
        }
    }

    /// Ends all changes under construction.
    pub(super) fn seal_all(&mut self) {
        self.changes_open = 0;
        for dpid in std::mem::take(&mut self.changing) {
            if let Some(channel) = self.channels.get_mut(&dpid) {
                channel.pipe.seal();
            }
        }
    }

    /// Whether a message is part of a change under construction.
    pub(super) fn is_member(&self, dpid: DatapathId, message: &Message, frame: &Frame) -> bool {
        let can_bundle =
            |version, ability: Ability| version >= Version::V13 && ability.is_promising();
        self.has_bundles
            && self.changes_open > 0
            && can_hold(message, frame)
            && self
                .channels
                .get(&dpid)
                .is_some_and(|channel| can_bundle(channel.version, channel.pipe.ability))
    }

    /// Opens a bundle for these messages, or puts them back if the switch accepts no bundles.
    pub(super) fn open_bundle(&mut self, dpid: DatapathId, members: Vec<Queued>) {
        let Some(channel) = self.channels.get_mut(&dpid) else {
            return;
        };
        if !channel.pipe.ability.is_promising() {
            return channel.pipe.spill(members);
        }
        let xid = channel.requests.next_xid();
        let bundle = channel.pipe.begin(xid, members);
        let open = bundle.control(BundleCommand::OpenRequest);
        self.write_control(dpid, xid, &open);
    }

    /// Writes the next message of a bundle. Returns whether another one may follow.
    pub(super) fn write_bundle(&mut self, dpid: DatapathId) -> bool {
        let Some(channel) = self.channels.get_mut(&dpid) else {
            return false;
        };
        let pipe = &mut channel.pipe;
        let room = pipe.room();
        let Some(bundle) = &mut pipe.bundle else {
            return false;
        };
        let id = bundle.id();
        let Step::Adding { count } = &mut bundle.step else {
            return false;
        };
        let Some(member) = bundle.members.get(*count) else {
            let xid = channel.requests.next_xid();
            bundle.step = Step::Committing { xid, fence: None };
            let commit = bundle.control(BundleCommand::CommitRequest);
            self.write_control(dpid, xid, &commit);
            return false;
        };
        let Ok(frame) = bundle_add(channel.version, id, FLAGS, &member.frame) else {
            self.give_up(dpid, None);
            return true;
        };
        let has_room = frame.len() <= room;
        if has_room {
            *count += 1;
            self.put(dpid, frame);
        }
        has_room
    }

    /// Writes a message about a bundle, and a barrier.
    fn write_control(&mut self, dpid: DatapathId, xid: Xid, message: &Message) {
        let version = self.channels.get(&dpid).map(|channel| channel.version);
        let frame = version.and_then(|version| encode(version, xid, message).ok());
        let Some(frame) = frame else {
            return self.give_up(dpid, None);
        };
        self.put(dpid, frame);
        let waits = |bundle: &Bundle| !matches!(bundle.step, Step::Adding { .. });
        if self.bundle(dpid).is_some_and(|bundle| waits(bundle)) {
            let fence = self.send_barrier(dpid);
            if let Some(bundle) = self.bundle(dpid) {
                bundle.set_fence(fence);
            }
        }
    }

    fn bundle(&mut self, dpid: DatapathId) -> Option<&mut Bundle> {
        self.channels.get_mut(&dpid)?.pipe.bundle.as_mut()
    }

    /// Handles a switch's answer about a bundle. Returns the errors of messages without which the
    /// bundle was carried out; `None` if nothing waits for the answer.
    pub(in crate::controller) fn handle_bundle(
        &mut self,
        dpid: DatapathId,
        xid: Xid,
        answer: &BundleControl,
    ) -> Option<BTreeMap<Xid, ErrorMessage>> {
        let pipe = &mut self.channels.get_mut(&dpid)?.pipe;
        let bundle = pipe.bundle.as_mut()?;
        let refused = match (&bundle.step, answer.command) {
            (step, BundleCommand::OpenReply) if bundle.open == xid => {
                if let Step::Opening { .. } = step {
                    bundle.step = Step::Adding { count: 0 };
                    pipe.ability = Ability::Able;
                }
                BTreeMap::new()
            }
            (Step::Committing { xid: waits, .. }, BundleCommand::CommitReply) if *waits == xid => {
                let mut refused = std::mem::take(&mut bundle.refused);
                // Bundles have no room or no place for some of them. Alone they may be accepted.
                let alone = refused.extract_if(.., |_, error| is_about_bundles(error));
                let alone: Vec<usize> = alone
                    .filter_map(|(xid, _)| bundle.places.get(&xid).copied())
                    .collect();
                let members = std::mem::take(&mut bundle.members).into_iter().enumerate();
                let members = members.filter(|(place, _)| alone.contains(place));
                let members = members.map(|(_, member)| member).collect();
                pipe.bundle = None;
                pipe.spill(members);
                self.counters.bundles_committed += 1;
                refused
            }
            _ => return None,
        };
        self.touch(dpid);
        Some(refused)
    }

    /// Handles an error of a bundle or of a message in it. Returns whether it is one.
    pub(in crate::controller) fn handle_bundle_error(
        &mut self,
        dpid: DatapathId,
        xid: Xid,
        error: &ErrorMessage,
    ) -> bool {
        let Some(bundle) = self.bundle(dpid) else {
            return false;
        };
        match bundle.step {
            Step::Opening { .. } if bundle.open == xid => {
                self.give_up(dpid, Some(error.kind));
                true
            }
            Step::Committing { xid: commit, .. } if commit == xid => {
                self.give_up(dpid, Some(error.kind));
                true
            }
            // The commit fails as well.
            _ if bundle.open == xid => true,
            _ => {
                let place = bundle.places.get(&xid);
                let member = place.and_then(|place| bundle.members.get(*place));
                let Some(member) = member else {
                    return false;
                };
                bundle.refused.entry(xid).or_insert_with(|| ErrorMessage {
                    data: member.frame.bytes().clone(),
                    ..error.clone()
                });
                true
            }
        }
    }

    /// Handles the end of a barrier that may be a bundle's. Returns whether the switch's entries
    /// are unknown now: it has answered neither the commit nor the barrier.
    pub(in crate::controller) fn handle_bundle_fence(
        &mut self,
        dpid: DatapathId,
        barrier: Xid,
        is_answered: bool,
    ) -> bool {
        let Some(channel) = self.channels.get_mut(&dpid) else {
            return false;
        };
        let Some(bundle) = &channel.pipe.bundle else {
            return false;
        };
        match bundle.step {
            Step::Opening { fence } if fence == Some(barrier) => {
                self.give_up(dpid, None);
                false
            }
            Step::Committing { fence, .. } if fence == Some(barrier) => {
                if is_answered {
                    self.give_up(dpid, None);
                } else {
                    channel.pipe.ability = Ability::Silent;
                }
                !is_answered
            }
            _ => false,
        }
    }

    /// Ends a bundle that the switch refuses: its messages are sent one by one.
    fn give_up(&mut self, dpid: DatapathId, error: Option<ErrorKind>) {
        let Some(channel) = self.channels.get_mut(&dpid) else {
            return;
        };
        let pipe = &mut channel.pipe;
        let Some(bundle) = pipe.bundle.take() else {
            return;
        };
        let is_open = !matches!(bundle.step, Step::Opening { .. });
        if !is_open {
            pipe.ability = Ability::Unable;
        }
        pipe.spill(bundle.members);
        self.counters.bundles_refused += 1;
        if !std::mem::replace(&mut pipe.is_refusal_known, true) {
            let takes_others = is_open;
            self.event(Event::BundleRefused {
                dpid,
                error,
                takes_others,
            });
        }
        self.touch(dpid);
    }

    /// Sets whether changes are sent as bundles.
    pub(in crate::controller) fn set_bundles(&mut self, has_bundles: bool) {
        self.has_bundles = has_bundles;
    }
}
