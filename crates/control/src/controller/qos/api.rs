//! QoS as the controller's callers and its other parts see it.

use std::collections::BTreeMap;

use clock::Instant;
use openflow::multipart::ReplyBody;
use openflow::{DatapathId, ErrorKind, PortNo, Xid};

use crate::qos::asked::Edit;
use crate::qos::check::Problem;
use crate::qos::plan::PortPlan;
use crate::qos::verify::Beside;
use crate::qos::{Network, Qos, QueuesBy, Rate};
use crate::timeouts::HostName;

use super::super::outbox::Request;
use super::super::{Controller, Location};
use super::{Around, QosReport, QosRows, QosState, QosWork, VerifyReport, View};

impl Controller {
    /// The state of QoS, and what it works with.
    fn with_qos(&mut self) -> (&mut QosState, Around<'_>) {
        let view = View {
            net: &self.network,
            hosts: &self.hosts,
        };
        let around = Around {
            view,
            tables: &mut self.tables,
            outbox: &mut self.outbox,
        };
        (&mut self.qos, around)
    }

    fn qos_view(&self) -> View<'_> {
        View {
            net: &self.network,
            hosts: &self.hosts,
        }
    }

    /// Replaces all services, policies, circuits and queues. Refuses demands that are impossible on
    /// this network, with all problems, and then changes nothing. Demands that are not possible yet
    /// wait.
    ///
    /// Call this before switches connect: entries found on them without a demand are deleted.
    ///
    /// # Errors
    /// All problems, by field.
    pub fn set_qos(&mut self, now: Instant, qos: Qos) -> Result<(), Vec<Problem>> {
        let (machine, mut around) = self.with_qos();
        machine.set_qos(&mut around, now, qos)
    }

    /// Changes services and policies, all of `edits` or none, like [`Controller::set_qos`]. The
    /// work is in proportion to `edits`, not to the number of demands.
    ///
    /// # Errors
    /// All problems of `edits`, by field.
    pub fn edit_qos(&mut self, now: Instant, edits: Vec<Edit>) -> Result<(), Vec<Problem>> {
        let (machine, mut around) = self.with_qos();
        machine.edit_qos(&mut around, now, edits)
    }

    /// Replaces all demands like [`Controller::set_qos`], for a caller that wants this circuit now
    /// and waits for the answer. If the circuit asks for admission and has no room, all of it is
    /// refused. Facts that are not known yet are no reason to refuse.
    ///
    /// # Errors
    /// All problems, by field.
    pub fn set_qos_with(
        &mut self,
        now: Instant,
        qos: Qos,
        circuit: &str,
    ) -> Result<(), Vec<Problem>> {
        let (machine, mut around) = self.with_qos();
        machine.set_qos_with(&mut around, now, qos, circuit)
    }

    /// Whether [`Controller::edit_qos`] would take `edits`. Changes nothing.
    ///
    /// # Errors
    /// All problems of `edits`, by field.
    pub fn check_edit_qos(&mut self, edits: Vec<Edit>) -> Result<(), Vec<Problem>> {
        let (machine, mut around) = self.with_qos();
        machine.check_edit_qos(&mut around, edits)
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
    /// database that is away for a moment needs no call: its facts stay the same.
    pub fn set_queues_by(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        by: QueuesBy,
        rates: BTreeMap<PortNo, Rate>,
    ) {
        let (machine, mut around) = self.with_qos();
        machine.set_queues_by(&mut around, now, dpid, by, rates);
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
        let (machine, mut around) = self.with_qos();
        machine.read_qos_counts(&mut around, now);
    }

    /// Takes in the counts of a switch's queues in the kernel, by port, where its datapath ignores
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
        let (machine, mut around) = self.with_qos();
        machine.qos_soon(&mut around, now);
    }

    pub(in crate::controller) fn qos_restart_timers(&mut self) {
        let (machine, mut around) = self.with_qos();
        machine.qos_restart_timers(&mut around);
    }

    pub(in crate::controller) fn qos_host(
        &mut self,
        now: Instant,
        names: impl IntoIterator<Item = HostName>,
        at: Location,
    ) {
        let (machine, mut around) = self.with_qos();
        machine.qos_host(&mut around, now, names, at);
    }

    pub(in crate::controller) fn qos_due(&mut self, now: Instant) {
        let (machine, mut around) = self.with_qos();
        machine.qos_due(&mut around, now);
    }

    pub(in crate::controller) fn advance_qos(&mut self, now: Instant) {
        let (machine, mut around) = self.with_qos();
        machine.advance_qos(&mut around, now);
    }

    pub(in crate::controller) fn qos_confirmed(&mut self, now: Instant, dpid: DatapathId) {
        let (machine, mut around) = self.with_qos();
        machine.qos_confirmed(&mut around, now, dpid);
    }

    pub(in crate::controller) fn qos_unconfirmed(&mut self, now: Instant, dpid: DatapathId) {
        let (machine, mut around) = self.with_qos();
        machine.qos_unconfirmed(&mut around, now, dpid);
    }

    pub(in crate::controller) fn qos_down(&mut self, now: Instant, dpid: DatapathId) {
        let (machine, mut around) = self.with_qos();
        machine.qos_down(&mut around, now, dpid);
    }

    pub(in crate::controller) fn qos_refused(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        xid: Xid,
        error: ErrorKind,
    ) {
        let (machine, mut around) = self.with_qos();
        machine.qos_refused(&mut around, now, dpid, xid, error);
    }

    pub(in crate::controller) fn qos_up(&mut self, now: Instant, dpid: DatapathId, tables: u8) {
        self.qos.qos_up(now, dpid, tables);
    }

    pub(in crate::controller) fn qos_lost(&mut self, dpid: DatapathId) {
        let (machine, mut around) = self.with_qos();
        machine.qos_lost(&mut around, dpid);
    }

    pub(in crate::controller) fn read_qos(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        told: &QosRows,
        is_first: bool,
    ) {
        let (machine, mut around) = self.with_qos();
        machine.read_qos(&mut around, now, dpid, told, is_first);
    }

    pub(in crate::controller) fn handle_qos_answer(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        request: Request,
        bodies: Vec<ReplyBody>,
    ) {
        let (machine, mut around) = self.with_qos();
        machine.handle_qos_answer(&mut around, now, dpid, request, bodies);
    }

    pub(in crate::controller) fn handle_qos_counts(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        request: Request,
        bodies: Vec<ReplyBody>,
    ) {
        let (machine, mut around) = self.with_qos();
        machine.handle_qos_counts(&mut around, now, dpid, request, bodies);
    }
}
