//! The QoS interface for the controller's callers and its other parts.

use std::collections::BTreeMap;

use clock::Instant;
use openflow::{DatapathId, PortNo};

use crate::qos::asked::Edit;
use crate::qos::check::Problem;
use crate::qos::plan::PortPlan;
use crate::qos::verify::Beside;
use crate::qos::{Network, Qos, QueuesBy, Rate};

use super::super::Controller;
use super::{Around, QosReport, QosState, QosWork, VerifyReport, View};

impl Controller {
    /// Changes the QoS state, with access to its surroundings.
    pub(in crate::controller) fn with_qos<R>(
        &mut self,
        change: impl FnOnce(&mut QosState, &mut Around<'_>) -> R,
    ) -> R {
        let view = View {
            net: &self.network,
            hosts: &self.hosts,
        };
        let mut around = Around {
            view,
            tables: &mut self.tables,
            outbox: &mut self.outbox,
        };
        change(&mut self.qos, &mut around)
    }

    fn qos_view(&self) -> View<'_> {
        View {
            net: &self.network,
            hosts: &self.hosts,
        }
    }

    /// Replaces all services, policies, circuits and queues. If demands are impossible on this
    /// network, returns all problems and changes nothing. Demands that are not possible yet wait.
    ///
    /// Call this before switches connect: entries found on them without a demand are deleted.
    ///
    /// # Errors
    /// All problems, by field.
    pub fn set_qos(&mut self, now: Instant, qos: Qos) -> Result<(), Vec<Problem>> {
        self.with_qos(|machine, around| machine.set_qos(around, now, qos))
    }

    /// Applies all of `edits` to services and policies, or none, like [`Controller::set_qos`]. The
    /// work is in proportion to `edits`, not to the number of demands.
    ///
    /// # Errors
    /// All problems of `edits`, by field.
    pub fn edit_qos(&mut self, now: Instant, edits: Vec<Edit>) -> Result<(), Vec<Problem>> {
        self.with_qos(|qos, around| qos.edit_qos(around, now, edits))
    }

    /// Replaces all demands like [`Controller::set_qos`], for a caller that wants this circuit now
    /// and waits for the answer. If the circuit asks for admission and has no room, all demands are
    /// refused. Facts not known yet are no reason to refuse.
    ///
    /// # Errors
    /// All problems, by field.
    pub fn set_qos_with(
        &mut self,
        now: Instant,
        qos: Qos,
        circuit: &str,
    ) -> Result<(), Vec<Problem>> {
        self.with_qos(|machine, around| machine.set_qos_with(around, now, qos, circuit))
    }

    /// Whether [`Controller::edit_qos`] would take `edits`. Changes nothing.
    ///
    /// # Errors
    /// All problems of `edits`, by field.
    pub fn check_edit_qos(&mut self, edits: Vec<Edit>) -> Result<(), Vec<Problem>> {
        self.with_qos(|qos, around| qos.check_edit_qos(around, edits))
    }

    /// Whether [`Controller::set_qos_with`] would take `qos`, or [`Controller::set_qos`] without a
    /// `circuit`. Changes nothing.
    ///
    /// # Errors
    /// All problems, by field.
    pub fn check_qos(&self, qos: &Qos, circuit: Option<&str>) -> Result<(), Vec<Problem>> {
        let problems = self.qos.check_qos(self.qos_view(), qos, circuit);
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems),
        }
    }

    /// The present demands.
    pub fn qos(&self) -> &Qos {
        self.qos.asked.qos()
    }

    /// The work that changes of services and policies have caused since the start.
    pub fn qos_work(&self) -> QosWork {
        self.qos.qos_work()
    }

    /// The network as far as it is known. A switch that has not reported its meters yet counts as
    /// the most capable.
    pub fn qos_network(&self) -> Network {
        self.qos.qos_network(self.qos_view())
    }

    /// Sets how the queues of a switch are made, and the rates of its ports where they are known. A
    /// database that disconnects for a moment needs no call: its facts stay the same.
    pub fn set_queues_by(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        by: QueuesBy,
        rates: BTreeMap<PortNo, Rate>,
    ) {
        self.with_qos(|qos, around| qos.set_queues_by(around, now, dpid, by, rates));
    }

    /// The queues that databases should hold, by switch and port. An absent switch is undecided,
    /// and its queues are left alone; one without ports should have no queues.
    pub fn wanted_queues(&self) -> BTreeMap<DatapathId, BTreeMap<PortNo, PortPlan>> {
        self.qos.wanted_queues()
    }

    /// Asks all switches for the counters of policies and circuits. The controller does so every
    /// ten seconds; a caller may ask sooner. Skips a switch that has not answered yet, or has just
    /// answered.
    pub fn read_qos_counts(&mut self, now: Instant) {
        self.with_qos(|qos, around| qos.read_qos_counts(around, now));
    }

    /// Records the counts of a switch's queues in the kernel, by port, where its datapath ignores
    /// `set_queue`.
    pub fn set_queue_counts(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        ports: BTreeMap<PortNo, Beside>,
    ) {
        self.qos.set_queue_counts(now, dpid, ports);
    }

    /// The verdicts on each hop of policies and circuits, from packets counted since `from`, within
    /// a minute at most.
    pub fn verify_report(&self, now: Instant, from: Instant) -> VerifyReport {
        self.qos.verify_report(now, from)
    }

    /// Reports the progress, the reasons for waiting, and the counters of each policy and circuit.
    pub fn qos_report(&self) -> QosReport {
        self.qos.qos_report()
    }

    pub(in crate::controller) fn qos_soon(&mut self, now: Instant) {
        self.with_qos(|qos, around| qos.qos_soon(around, now));
    }
}
