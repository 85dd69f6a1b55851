//! The end next to the switches: dials the other relay, and redials it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use clock::Instant;
use quinn::IdleTimeout;
use relay::wire::Control;
use relay::{CARRIERS_MAX, WireError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{self, timeout};

use super::carriers::Joined;
use super::early::{self, Dialling, Said};
use super::end::{End, State};
use super::link::{self, Farewell, Greeted, LinkError};
use super::over_tls::{self, Ended, GreetedTls};
use super::{LINK_IDLE_TIMEOUT, path, peer_name, relay_name, transport_config};
use net::method::{Host, Method, Transport};
use net::quic;
use net::tls::{PeerSide, Security};
use net::transport::{self, Refusal, TransportError, resolve};

/// Maximum delay before redialling after a connection that lasted [`BACKOFF_MAX`]: at once, but not
/// by all relays in the same moment.
const SPREAD: Duration = Duration::from_millis(20);
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// At most one attempt a second. It costs one packet, and a relay that comes back is found at once.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// The longest turn of two relays that take turns under one name.
const RIVALRY_MAX: Duration = Duration::from_secs(60);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time limit for the first answer to a handshake: the longest silence of a connection.
const ANSWER_TIMEOUT: Duration = LINK_IDLE_TIMEOUT;
/// Time limit for the rest of a handshake, from its first answer on: the relay may be answering
/// 1,000 others first. Trying again sooner would put this one at the end of that queue.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that one relay has before the next one in order is dialled too: more than a round trip,
/// and too short for anybody to notice.
const HEAD_START: Duration = Duration::from_millis(250);
/// One unanswered handshake may be the other relay's restart, or a busy machine.
const UNANSWERED_MAX: u32 = 2;
/// Interval between attempts by UDP while TLS carries the session.
const UDP_RETRY: Duration = Duration::from_secs(30);

/// Keeps `end` connected to the first relay of `methods` that answers, for as long as it is polled.
/// The methods are `quic:` ones in order of preference. Another relay, even an earlier one, is
/// dialled only when the present one is lost. Returns only when this can never work.
///
/// Another address of the same relay resumes the session. Another relay begins a new one.
pub async fn switch(end: &Arc<End>, methods: &[Method], security: &Security) -> TransportError {
    let dialler = match Dialler::new(end, methods, security) {
        Ok(dialler) => dialler,
        Err(error) => return error,
    };
    let mut pauses = Pauses::default();
    let mut told = BTreeMap::new();
    let mut unanswered = 0;
    let mut present = LastRelay::default();
    loop {
        let order = present.order(methods.len());
        let pause = match end.unless_closed(dialler.dial(&order)).await {
            Ok(Dialled {
                relay,
                greeted,
                joins,
            }) => {
                unanswered = 0;
                told.clear();
                let method = &methods[relay];
                dialler.note(relay, greeted.resumed, "");
                let connection = greeted.connection.clone();
                let begun = time::Instant::now();
                let error = tokio::select! {
                    error = link::run_judged(end, greeted, security, PeerSide::Server) => error,
                    never = dialler.follow_map(relay, joins) => match never {},
                };
                end.unless_closed(std::future::ready(())).await;
                let farewell = link::farewell(&connection).await;
                present = LastRelay {
                    relay: Some(relay),
                    is_stopped: matches!(error, LinkError::Revoked)
                        || farewell == Farewell::Stopped,
                };
                let pause = pauses.after(begun.elapsed(), farewell, end.now());
                match farewell {
                    Farewell::Replaced => tracing::warn!(
                        relay = %method,
                        "replaced: another relay came with this one's certificate name; give each \
                         relay a certificate of its own. It is dialled again in {} s",
                        pause.as_secs_f32().ceil()
                    ),
                    _ => tracing::warn!(relay = %method, "disconnected: {error}"),
                }
                pause
            }
            Err(failures) => {
                let may_be_blocked = note_unanswered(&mut unanswered, &failures);
                count_refused(end, &failures);
                tell(methods, &mut told, failures);
                if may_be_blocked {
                    match end.unless_closed(dialler.dial_tls(&order)).await {
                        Ok((relay, greeted)) => {
                            told.clear();
                            let begun = time::Instant::now();
                            present = dialler.go_on_by_tls(relay, greeted).await;
                            pauses.note_held(begun.elapsed());
                        }
                        Err(failures) => tell(methods, &mut told, failures),
                    }
                }
                pauses.after_failure(end.now())
            }
        };
        time::sleep(pause).await;
    }
}

/// The pauses between attempts to dial.
struct Pauses {
    backoff: Duration,
    /// The pause after another relay of the same name has connected.
    rivalry: Duration,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            backoff: BACKOFF_MIN,
            rivalry: BACKOFF_MAX,
        }
    }
}

impl Pauses {
    /// Forgets earlier failures if a connection lasted long enough.
    fn note_held(&mut self, held: Duration) {
        if held >= BACKOFF_MAX {
            self.backoff = BACKOFF_MIN;
        }
        // Longer than a turn of two rivals.
        if held >= 2 * RIVALRY_MAX {
            self.rivalry = BACKOFF_MAX;
        }
    }

    /// Returns the pause after a connection, from how long it lasted and how it ended.
    fn after(&mut self, held: Duration, farewell: Farewell, now: Instant) -> Duration {
        self.note_held(held);
        if farewell == Farewell::Replaced {
            let pause = jittered(self.rivalry, now);
            self.rivalry = (self.rivalry * 2).min(RIVALRY_MAX);
            return pause;
        }
        match held >= BACKOFF_MAX {
            true => spread(now),
            false => self.after_failure(now),
        }
    }

    fn after_failure(&mut self, now: Instant) -> Duration {
        let pause = jittered(self.backoff, now);
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        pause
    }
}

/// Counts attempts without any answer. Returns whether a firewall may block UDP; TCP to the same
/// port may still pass. A relay that answers but has no time yet would have even less of it for
/// TLS.
fn note_unanswered(unanswered: &mut u32, failures: &[(usize, DialError)]) -> bool {
    let any = |of: fn(&DialError) -> bool| failures.iter().any(|(_, error)| of(error));
    if any(|error| matches!(error, DialError::Unfinished)) {
        *unanswered = 0;
        return false;
    }
    let is_unanswered = any(|error| matches!(error, DialError::Unanswered));
    *unanswered += u32::from(is_unanswered);
    is_unanswered && *unanswered >= UNANSWERED_MAX
}

/// Counts handshakes that either side has refused.
fn count_refused(end: &End, failures: &[(usize, DialError)]) {
    for (_, error) in failures {
        if let DialError::Refused(reason, _) = error {
            end.refusals.count(*reason);
        }
    }
}

/// Logs why relays could not be dialled, once for each reason: they are tried every second.
fn tell(methods: &[Method], told: &mut BTreeMap<usize, String>, failures: Vec<(usize, DialError)>) {
    for (relay, error) in failures {
        if matches!(error, DialError::Unanswered) {
            continue;
        }
        let problem = error.to_string();
        if told.get(&relay) != Some(&problem) {
            tracing::warn!("{}: {problem}", methods[relay]);
            told.insert(relay, problem);
        }
    }
}

/// The relay of the last connection.
#[derive(Clone, Copy, Default)]
struct LastRelay {
    relay: Option<usize>,
    /// The relay has announced its end.
    is_stopped: bool,
}

impl LastRelay {
    /// The order in which relays are dialled: the present one first, since only it can know the
    /// session; the others by preference.
    fn order(self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        let rank = |relay: &usize| match Some(*relay) == self.relay {
            true if self.is_stopped => 2,
            true => 0,
            false => 1,
        };
        order.sort_by_key(rank);
        order
    }
}

#[derive(Clone, Debug)]
enum DialError {
    /// No answer came.
    Unanswered,
    /// The relay answered, but did not finish in time.
    Unfinished,
    /// One side does not accept the other's certificate or protocol.
    Refused(Refusal, String),
    Failed(String),
}

impl std::fmt::Display for DialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DialError::Unanswered => f.write_str("no relay answers there"),
            DialError::Unfinished => f.write_str("the relay answers but has no time for us"),
            DialError::Refused(_, problem) | DialError::Failed(problem) => f.write_str(problem),
        }
    }
}

/// Waits for `shaking` for as long as it can still succeed.
async fn in_time<T>(
    shaking: impl Future<Output = Result<T, quinn::ConnectionError>>,
    heard: &quic::Heard,
) -> Result<T, DialError> {
    let mut shaking = std::pin::pin!(shaking);
    let mut done = timeout(ANSWER_TIMEOUT, &mut shaking).await;
    if done.is_err() && heard.anything() {
        done = timeout(TURN_TIMEOUT, shaking).await;
    }
    match done {
        Ok(Ok(shaken)) => Ok(shaken),
        // The connection's own idle timeout fires first if this machine stalls meanwhile.
        Ok(Err(error)) if error != quinn::ConnectionError::TimedOut => Err(lost(&error)),
        _ if heard.anything() => Err(DialError::Unfinished),
        _ => Err(DialError::Unanswered),
    }
}

/// A relay that has answered.
struct Dialled {
    relay: usize,
    greeted: Greeted,
    /// Further connections of the session are sent here.
    joins: mpsc::Sender<Joined>,
}

/// One connection of the session.
struct SessionConnection {
    connection: quinn::Connection,
    marks: quic::Marks,
    /// The early data that the other end accepted.
    said: Option<Said>,
}

/// The place of a relay.
#[derive(Clone)]
struct Target {
    method: Method,
    host: Host,
    port: u16,
    /// The server name for TLS.
    name: String,
}

/// Dials other relays for one session, repeatedly.
struct Dialler<'a> {
    end: &'a Arc<End>,
    methods: &'a [Method],
    targets: Vec<Target>,
    security: &'a Security,
    config: quinn::ClientConfig,
    /// The tickets, where early data is asked for.
    early: Option<Arc<Dialling>>,
}

impl<'a> Dialler<'a> {
    fn new(
        end: &'a Arc<End>,
        methods: &'a [Method],
        security: &'a Security,
    ) -> Result<Dialler<'a>, TransportError> {
        let target = |method: &Method| {
            let Method::Dial(Transport::Quic, host, port) = method else {
                return Err(TransportError::local(
                    method,
                    "relays connect by quic:HOST[:PORT]",
                ));
            };
            let name = net::transport::server_name(host)
                .map_err(|problem| TransportError::local(method, problem))?;
            Ok(Target {
                method: method.clone(),
                host: host.clone(),
                port: *port,
                name: name.to_str().into_owned(),
            })
        };
        let targets = methods.iter().map(target).collect::<Result<Vec<_>, _>>()?;
        assert!(!targets.is_empty(), "somebody to dial");
        let config = quic::client_config(security, &[quic::ALPN_RELAY]);
        let mut config = config.ok_or_else(|| TransportError::no_credentials(&methods[0]))?;
        let mut transport = transport_config(&end.config.scheduling);
        // The listener's idle timeout applies as soon as we have received it; until then the
        // listener may have no time for us.
        let until_then = IdleTimeout::try_from(ANSWER_TIMEOUT + TURN_TIMEOUT);
        transport.max_idle_timeout(Some(until_then.expect("fits a QUIC variable integer")));
        let transport = Arc::new(transport);
        config.transport_config(transport.clone());
        Ok(Dialler {
            early: Dialling::new(security, &transport),
            end,
            methods,
            targets,
            security,
            config,
        })
    }

    /// Returns the first relay in `order` that accepts the session, with all connections that the
    /// session needs; or why each relay failed.
    async fn dial(&self, order: &[usize]) -> Result<Dialled, Vec<(usize, DialError)>> {
        let mut order = order.to_vec();
        let mut failures = Vec::new();
        while !order.is_empty() {
            let (relay, connected) = match self.connect_any(&order).await {
                Ok(found) => found,
                Err(more) => {
                    failures.extend(more);
                    break;
                }
            };
            match self.take_up(relay, connected).await {
                Ok(dialled) => return Ok(dialled),
                Err(error) => {
                    failures.push((relay, error));
                    order.retain(|other| *other != relay);
                }
            }
        }
        Err(failures)
    }

    /// Returns the first relay that completes a handshake. Each relay is dialled a little later
    /// than the one before it, or when that one has failed.
    async fn connect_any(
        &self,
        order: &[usize],
    ) -> Result<(usize, SessionConnection), Vec<(usize, DialError)>> {
        let dscp = self.end.carriers().code_points()[0];
        let mut attempts = JoinSet::new();
        let mut failures = Vec::new();
        let mut left = order.iter();
        loop {
            if let Some(relay) = left.next() {
                let attempt = self.connect(*relay, dscp, self.early.clone());
                let relay = *relay;
                attempts.spawn(async move { (relay, attempt.await) });
            }
            let next = async {
                match left.len() {
                    0 => std::future::pending().await,
                    _ => time::sleep(HEAD_START).await,
                }
            };
            tokio::select! {
                done = attempts.join_next() => match done {
                    None => return Err(failures),
                    Some(Ok((relay, Ok(connected)))) => return Ok((relay, connected)),
                    Some(Ok((relay, Err(error)))) => failures.push((relay, error)),
                    Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
                },
                () = next => {}
            }
        }
    }

    /// Exchanges settings, and adds the further connections that both ends want.
    async fn take_up(
        &self,
        relay: usize,
        connected: SessionConnection,
    ) -> Result<Dialled, DialError> {
        let (joins, joined) = mpsc::channel(CARRIERS_MAX);
        let greeted = greet(self.end, connected, joined);
        let mut greeted = answered(timeout(link::SETTINGS_TIMEOUT, greeted).await)?;
        let points = greeted.carriers.code_points().to_vec();
        let to = greeted.connection.remote_address();
        greeted.marks.set(to, points[0]);
        for dscp in &points[1..] {
            greeted.further.push(self.join(relay, *dscp).await?);
        }
        Ok(Dialled {
            relay,
            greeted,
            joins,
        })
    }

    /// Opens one more connection of the session.
    async fn join(&self, relay: usize, dscp: u8) -> Result<Joined, DialError> {
        let SessionConnection {
            connection,
            marks,
            said: _,
        } = self.connect(relay, dscp, None).await?;
        let session = self.end.with(|session| session.id());
        let ours = Control::Join { session, dscp };
        let joined = async {
            let (mut send, mut recv) = connection.open_bi().await?;
            send.write_all(&ours.encode()).await?;
            if link::read_first(&mut recv, &mut BytesMut::new()).await? != ours {
                return Err(WireError("an answer to another join").into());
            }
            Ok((send, recv))
        };
        let (send, recv) = answered(timeout(link::SETTINGS_TIMEOUT, joined).await)?;
        Ok(Joined {
            connection,
            marks,
            dscp,
            send,
            recv,
        })
    }

    fn connect(
        &self,
        relay: usize,
        dscp: u8,
        early: Option<Arc<Dialling>>,
    ) -> impl Future<Output = Result<SessionConnection, DialError>> + Send + 'static {
        let target = self.targets[relay].clone();
        let (config, early) = match early {
            None => (self.config.clone(), None),
            Some(early) => {
                let (config, pool) = early.config(self.end);
                (config, Some((early, pool)))
            }
        };
        let end = self.end.clone();
        let scheduling = self.end.config.scheduling.clone();
        async move {
            let address = resolve(&target.method, &target.host, target.port).await;
            let address = address.map_err(|e| failed(&e))?[0];
            let (endpoint, marks, heard) = scheduling
                .dialling(path::any_address(address), dscp)
                .map_err(|e| failed(&e))?;
            let connecting = endpoint
                .connect_with(config, address, &target.name)
                .map_err(|e| failed(&e))?;
            let shaken = async {
                match early {
                    Some((early, pool)) => early.shake(&end, connecting, pool).await,
                    None => Ok((connecting.await?, None)),
                }
            };
            let (connection, said) = in_time(shaken, &heard).await?;
            Ok(SessionConnection {
                connection,
                marks,
                said,
            })
        }
    }

    /// Opens one TLS connection in place of all others, to the first relay that accepts it.
    async fn dial_tls(
        &self,
        order: &[usize],
    ) -> Result<(usize, GreetedTls), Vec<(usize, DialError)>> {
        let mut failures = Vec::new();
        for relay in order {
            match self.dial_one_tls(&self.targets[*relay]).await {
                Ok(greeted) => return Ok((*relay, greeted)),
                Err(problem) => {
                    let problem = format!("no relay answers there by QUIC; by TLS: {problem}");
                    failures.push((*relay, DialError::Failed(problem)));
                }
            }
        }
        Err(failures)
    }

    async fn dial_one_tls(&self, target: &Target) -> Result<GreetedTls, String> {
        let method = Method::Dial(Transport::Tls, target.host.clone(), target.port);
        let greeted = async {
            let connected = transport::connect(&method, self.security).await;
            let mut connection = connected.map_err(|error| error.to_string())?;
            let end = self.end;
            let ours = end.with(|session| session.settings(session.is_resumable()));
            let mut buf = BytesMut::new();
            let peer = async {
                over_tls::say(&mut connection, &ours).await?;
                over_tls::hear(&mut connection, &mut buf).await
            };
            let peer = peer.await.map_err(|error| error.to_string())?;
            if peer.session != ours.session {
                return Err("an answer for another session".to_owned());
            }
            let name = relay_name(connection.peer.name.clone());
            end.with_state(|state| state.peer = name);
            Ok(GreetedTls {
                carriers: end.settle(&ours, &peer),
                resumed: ours.resumed && peer.resumed,
                connection,
                buf,
                peer,
            })
        };
        let late = |_| "no settings in time".to_owned();
        timeout(HANDSHAKE_TIMEOUT, greeted).await.map_err(late)?
    }

    /// Carries the session by TLS until the connection breaks or QUIC is answered again.
    async fn go_on_by_tls(&self, relay: usize, greeted: GreetedTls) -> LastRelay {
        self.note(
            relay,
            greeted.resumed,
            " by TLS: no answer by QUIC, which is tried again",
        );
        let mut is_stopped = false;
        let why = tokio::select! {
            ended = over_tls::run(self.end, greeted) => match ended {
                Ended::Broken(error) => error.to_string(),
                Ended::Stopped => {
                    is_stopped = true;
                    "the other relay was stopped".to_owned()
                }
            },
            () = self.await_udp(relay) => "QUIC is answered again".to_owned(),
        };
        self.end.leave_tls();
        tracing::warn!(relay = %self.methods[relay], "disconnected: {why}");
        LastRelay {
            relay: Some(relay),
            is_stopped,
        }
    }

    /// Returns once a handshake by QUIC succeeds.
    async fn await_udp(&self, relay: usize) {
        loop {
            time::sleep(UDP_RETRY).await;
            if let Ok(connected) = self.connect(relay, 0, None).await {
                return connected.connection.close(0u32.into(), b"only asked");
            }
        }
    }

    /// Records and logs the present relay, and what a change means for the switch.
    fn note(&self, relay: usize, resumed: bool, how: &str) {
        let method = &self.methods[relay];
        let before = self.end.with_state(|state| {
            let before = state.relay.replace(method.clone());
            let is_other = before.as_ref().is_some_and(|before| before != method);
            state.failovers += u64::from(is_other);
            before.filter(|_| is_other)
        });
        match (before, resumed) {
            (None, _) => tracing::info!(relay = %method, resumed, "connected{how}"),
            (Some(before), true) => tracing::warn!(
                relay = %method, %before, "another address{how}: the session goes on"
            ),
            (Some(before), false) => tracing::warn!(
                relay = %method, %before,
                "another controller relay{how}: a new session, the switch connects again"
            ),
        }
    }

    /// Opens and leaves further connections as the map in use requires, while there is a
    /// connection.
    async fn follow_map(&self, relay: usize, joins: mpsc::Sender<Joined>) -> Infallible {
        let method = &self.methods[relay];
        loop {
            self.end.mapped.notified().await;
            let mut backoff = BACKOFF_MIN;
            let mut was_told = false;
            let mut done = Vec::new();
            loop {
                let missing = self.end.with_state(State::leave_surplus);
                let Some(dscp) = missing.into_iter().find(|dscp| !done.contains(dscp)) else {
                    break;
                };
                match self.join(relay, dscp).await {
                    Ok(joined) => {
                        // Not taken if the first connection has just ended.
                        let _ = joins.send(joined).await;
                        done.push(dscp);
                        tracing::info!(relay = %method, dscp, "one more connection");
                    }
                    // Meanwhile, messages of that class go with the next class below.
                    Err(problem) => {
                        if !std::mem::replace(&mut was_told, true) {
                            tracing::warn!("{method}: code point {dscp}: {problem}");
                        }
                        time::sleep(jittered(backoff, self.end.now())).await;
                        backoff = (backoff * 2).min(BACKOFF_MAX);
                    }
                }
            }
        }
    }
}

fn failed(error: &dyn std::fmt::Display) -> DialError {
    DialError::Failed(error.to_string())
}

/// Converts the failure of a connection. In TLS 1.3, a dialler learns only afterwards that it is
/// refused.
fn lost(error: &quinn::ConnectionError) -> DialError {
    use quinn::ConnectionError::{ConnectionClosed, TransportError};
    let (reason, problem) = quic::refusal(error);
    match error {
        ConnectionClosed(_) | TransportError(_) => DialError::Refused(reason, problem),
        _ => DialError::Failed(problem),
    }
}

fn answered<T>(answer: Result<Result<T, LinkError>, time::error::Elapsed>) -> Result<T, DialError> {
    let unanswered = |_| DialError::Failed("the relay does not answer".to_owned());
    answer.map_err(unanswered)?.map_err(|error| match error {
        LinkError::Lost(error) => lost(&error),
        error => failed(&error),
    })
}

async fn greet(
    end: &Arc<End>,
    connected: SessionConnection,
    joins: mpsc::Receiver<Joined>,
) -> Result<Greeted, LinkError> {
    let SessionConnection {
        connection,
        marks,
        said,
    } = connected;
    let said = match said {
        Some(said) => said,
        None => early::say(end, &connection).await?,
    };
    let Said {
        send,
        mut recv,
        ours,
        early,
        ..
    } = said;
    let mut buf = BytesMut::new();
    let Control::Settings(peer) = link::read_first(&mut recv, &mut buf).await? else {
        return Err(WireError("something before the settings").into());
    };
    if peer.session != ours.session {
        return Err(WireError("an answer for another session").into());
    }
    let carriers = end.settle(&ours, &peer);
    let resumed = ours.resumed && peer.resumed;
    let name = peer_name(&connection);
    end.with_state(|state| state.peer = name);
    Ok(Greeted {
        connection,
        marks,
        further: Vec::new(),
        joins,
        carriers,
        send,
        recv,
        buf,
        peer,
        resumed,
        said: ours.early.then_some(early.said),
    })
}

fn spread(now: Instant) -> Duration {
    Duration::from_nanos(now.as_nanos() % SPREAD.as_nanos() as u64)
}

/// Varies `pause` by up to a fifth, so that many relays do not reconnect in step.
fn jittered(pause: Duration, now: Instant) -> Duration {
    let fifth = pause.as_nanos() as u64 / 5;
    pause - Duration::from_nanos(fifth) + Duration::from_nanos(now.as_nanos() % (2 * fifth).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_tried_where_nothing_comes_back_and_not_where_a_relay_has_no_time() {
        let tries = |attempts: &[&[DialError]]| {
            let mut unanswered = 0;
            let mut note = |errors: &&[DialError]| {
                let failures: Vec<_> = errors.iter().cloned().enumerate().collect();
                note_unanswered(&mut unanswered, &failures)
            };
            attempts.iter().map(&mut note).collect::<Vec<bool>>()
        };
        use DialError::{Unanswered, Unfinished};
        let refused = DialError::Failed("refused".to_owned());
        assert_eq!(tries(&[&[Unanswered], &[Unanswered]]), [false, true]);
        assert_eq!(
            tries(&[&[Unanswered], &[refused], &[Unanswered]]),
            [false, false, true]
        );
        assert_eq!(
            tries(&[&[Unanswered], &[Unfinished], &[Unanswered]]),
            [false; 3]
        );
        assert_eq!(
            tries(&[&[Unanswered], &[Unanswered, Unfinished]]),
            [false; 2]
        );
        assert_eq!(
            tries(&[&[Unfinished], &[Unfinished], &[Unfinished]]),
            [false; 3]
        );
    }

    #[test]
    fn a_lost_relay_is_dialled_at_once_and_rivals_of_one_name_take_ever_longer_turns() {
        use Farewell::{None, Replaced, Stopped};
        let long = BACKOFF_MAX;
        let pauses = |ended: &[(Duration, Farewell)]| {
            let mut pauses = Pauses::default();
            let after = |(held, farewell): &(Duration, Farewell)| {
                // Jitter takes a fifth off at this moment.
                pauses.after(*held, *farewell, Instant::START).as_millis()
            };
            ended.iter().map(after).collect::<Vec<u128>>()
        };
        assert_eq!(pauses(&[(long, None), (long, Stopped)]), [0, 0]);
        let short = (Duration::ZERO, None);
        assert_eq!(
            pauses(&[short, short, short, short, short, (long, None), short]),
            [80, 160, 320, 640, 800, 0, 80]
        );
        let turns = pauses(&[(long, Replaced); 9]);
        assert_eq!(
            turns,
            [800, 1600, 3200, 6400, 12800, 25600, 48000, 48000, 48000]
        );
        let apart = (2 * RIVALRY_MAX, Replaced);
        assert_eq!(pauses(&[apart, apart, apart]), [800, 800, 800]);
    }

    #[test]
    fn the_present_relay_is_dialled_first_and_one_that_was_stopped_last() {
        let order = |relay, is_stopped| LastRelay { relay, is_stopped }.order(3);
        assert_eq!(order(None, false), [0, 1, 2]);
        assert_eq!(order(Some(1), false), [1, 0, 2]);
        assert_eq!(order(Some(0), true), [1, 2, 0]);
        assert_eq!(order(Some(1), true), [0, 2, 1]);
    }
}
