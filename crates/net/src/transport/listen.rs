//! Accepting on a method: bounded handshakes run side by side, so that a slow one delays nobody.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::stat::Mode;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, TlsAcceptor};

use super::gate::{Gate, Ticket};
use super::turns::{Network, NoTurn, Silent, Turns};
use super::{
    Connection, FIRST_FLIGHT_TIMEOUT, HANDSHAKE_TIMEOUT, Limits, LineSocket, PeerIdentity, Refusal,
    Refusals, TransportError, TransportKind, dial, kept, socket, streams,
};
use crate::advice::bind_problem;
use crate::method::{Method, Transport};
use crate::quic;
use crate::tls::{PeerSide, Security, is_distrust};
use crate::workers::{self, Place, Workers};

/// Accepts connections on one passive method until it is dropped.
pub struct Listener {
    local: Method,
    accepted: mpsc::Receiver<Connection>,
    refusals: Arc<Refusals>,
    task: JoinHandle<()>,
    /// A Unix socket's file, removed with the listener.
    file: Option<PathBuf>,
    /// The address of a listener of plain TCP, and the state that its connections need.
    plain: Option<(SocketAddr, Door)>,
}

/// Established connections that wait for [`Listener::accept`].
const ACCEPTED_MAX: usize = 64;
/// Connections that have sent nothing yet, and as many that wait for the turn of their handshake.
const WAITING_MAX: usize = 4096;
/// The greatest number of waiting QUIC handshakes. It is below quinn's own bound (`max_incoming`),
/// beyond which quinn refuses any network.
const QUIC_WAITING_MAX: usize = 896;
/// The pause when the system has no file descriptor left: trying at once would burn a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Listener {
    /// Listens on `method`, which is passive. Connections run on the caller's runtime.
    pub async fn bind(
        method: &Method,
        security: &Security,
        limits: Limits,
    ) -> Result<Listener, TransportError> {
        Listener::bind_with(None, None, method, security, limits).await
    }

    /// Binds like [`Listener::bind`]. With `line`, connections are a limited link below a scheduler
    /// and hold few unsent bytes.
    pub async fn bind_line(
        line: Option<LineSocket>,
        method: &Method,
        security: &Security,
        limits: Limits,
    ) -> Result<Listener, TransportError> {
        Listener::bind_with(None, line, method, security, limits).await
    }

    /// Binds like [`Listener::bind`], but each connection runs on one of `workers`, from its
    /// handshake on.
    pub async fn bind_over(
        workers: Option<&Workers>,
        method: &Method,
        security: &Security,
        limits: Limits,
    ) -> Result<Listener, TransportError> {
        Listener::bind_with(workers, None, method, security, limits).await
    }

    async fn bind_with(
        workers: Option<&Workers>,
        line: Option<LineSocket>,
        method: &Method,
        security: &Security,
        limits: Limits,
    ) -> Result<Listener, TransportError> {
        let gate = Gate::new(limits);
        let refusals = gate.refusals.clone();
        let (sender, accepted) = mpsc::channel(ACCEPTED_MAX);
        let is_quic = matches!(method, Method::Listen(Transport::Quic, ..));
        let waiting_max = if is_quic {
            QUIC_WAITING_MAX
        } else {
            WAITING_MAX
        };
        let door = Door {
            gate,
            turns: Turns::new(limits.handshakes_max, waiting_max),
            workers: workers.cloned(),
            line,
            security: security.clone(),
            sender,
        };
        let bind_error = |error: io::Error| TransportError::local(method, bind_problem(&error));
        let mut file = None;
        let mut port = None;
        let plain = door.clone();
        let task = match method {
            Method::Listen(transport, host, wanted) => {
                let address = dial::resolve(method, host, *wanted).await?[0];
                match transport {
                    Transport::Tcp => {
                        let listener = socket::listen_tcp(address).map_err(bind_error)?;
                        port = listener.local_addr().ok();
                        tokio::spawn(door.accept_tcp(listener, None))
                    }
                    Transport::Tls => {
                        let config = security
                            .server_config(&[])
                            .ok_or_else(|| TransportError::no_credentials(method))?;
                        let listener = socket::listen_tcp(address).map_err(bind_error)?;
                        port = listener.local_addr().ok();
                        let acceptor = TlsAcceptor::from(Arc::new(config));
                        tokio::spawn(door.accept_tcp(listener, Some(acceptor)))
                    }
                    Transport::Quic => {
                        let config = quic::server_config(security, &[quic::ALPN_STREAM])
                            .ok_or_else(|| TransportError::no_credentials(method))?;
                        let endpoint = quic::endpoint(address, Some(config)).map_err(bind_error)?;
                        port = endpoint.local_addr().ok();
                        tokio::spawn(door.accept_quic(endpoint))
                    }
                }
            }
            Method::ListenUnix(path) => {
                let listener = bind_unix(path).map_err(bind_error)?;
                file = Some(path.clone());
                tokio::spawn(door.accept_unix(listener, path.clone()))
            }
            Method::Dial(..) | Method::DialUnix(_) => {
                return Err(TransportError::local(
                    method,
                    format!("this method dials; to listen write p{method}"),
                ));
            }
        };
        Ok(Listener {
            local: port.map_or_else(|| method.clone(), |a| method.with_port(a.port())),
            accepted,
            refusals,
            task,
            file,
            plain: port
                .filter(|_| matches!(method, Method::Listen(Transport::Tcp, ..)) && line.is_none())
                .map(|at| (at, plain)),
        })
    }

    /// Whether a connection of another process was made to the address of this listener, and the
    /// listener is for plain TCP.
    pub fn has_accepted(&self, stream: &std::net::TcpStream) -> bool {
        let plain = self.plain.as_ref().zip(stream.local_addr().ok());
        plain.is_some_and(|((at, _), local)| kept::came_by(*at, local))
    }

    /// Takes over such a connection as if it had just arrived. Returns `None` if the connection is
    /// broken, or the listener is at its limits: then the connection is closed.
    pub fn adopt(&self, stream: std::net::TcpStream) -> Option<Connection> {
        let (_, door) = self.plain.as_ref()?;
        let peer = stream.peer_addr().ok()?;
        let ticket = door.gate.admit(Some(peer.ip())).ok()?;
        let place = door.workers.as_ref().map(Workers::place);
        stream.set_nonblocking(true).ok()?;
        let stream = {
            let runtime = workers::runtime_of(place.as_ref());
            let _entered = runtime.enter();
            TcpStream::from_std(stream).ok()?
        };
        socket::tune_tcp(&stream).ok()?;
        let peer = PeerIdentity::plain(TransportKind::Tcp, peer);
        Some(Connection {
            place,
            ..streams::accepted(stream, peer, Some(ticket))
        })
    }

    /// The method with the assigned port.
    pub fn local(&self) -> &Method {
        &self.local
    }

    pub fn refusals(&self) -> &Arc<Refusals> {
        &self.refusals
    }

    /// The next connection whose handshake is done. Cancel-safe.
    pub async fn accept(&mut self) -> Connection {
        match self.accepted.recv().await {
            Some(connection) => connection,
            // The accepting task never ends by itself, and `drop` is what aborts it.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// The state that each accepting task shares with the handshakes it starts.
#[derive(Clone)]
struct Door {
    gate: Arc<Gate>,
    turns: Arc<Turns>,
    workers: Option<Workers>,
    line: Option<LineSocket>,
    /// Judges peers whose certificates are revoked later.
    security: Security,
    sender: mpsc::Sender<Connection>,
}

impl Door {
    async fn accept_tcp(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.accept_failed(&error).await;
                    continue;
                }
            };
            let Ok(ticket) = self.gate.admit(Some(address.ip())) else {
                continue;
            };
            let tuned = socket::tune_tcp(&stream)
                .and_then(|()| self.line.map_or(Ok(()), |l| socket::tune_line(&stream, l)));
            if tuned.is_err() {
                continue;
            }
            let place = self.workers.as_ref().map(Workers::place);
            let stream = match &place {
                None => stream,
                Some(place) => match tcp_to(place, stream) {
                    Ok(stream) => stream,
                    Err(error) => {
                        self.accept_failed(&error).await;
                        continue;
                    }
                },
            };
            match &tls {
                None => {
                    let peer = PeerIdentity::plain(TransportKind::Tcp, address);
                    let connection = match self.line {
                        None => streams::accepted(stream, peer, Some(ticket)),
                        Some(_) => streams::line(stream, peer, Some(ticket)),
                    };
                    self.hand_on(connection, place).await;
                }
                Some(acceptor) => {
                    let (door, acceptor) = (self.clone(), acceptor.clone());
                    let runtime = workers::runtime_of(place.as_ref());
                    let silent = self.turns.hear(Network::of(address.ip()));
                    let handshake =
                        door.shake_tls(acceptor, stream, address, (ticket, place), silent);
                    runtime.spawn(handshake);
                }
            }
        }
    }

    async fn shake_tls(
        self,
        acceptor: TlsAcceptor,
        stream: TcpStream,
        address: SocketAddr,
        (ticket, place): (Ticket, Option<Place>),
        silent: Silent,
    ) {
        let shaken = match self.line {
            None => self.shake(acceptor, stream, address, silent).await,
            Some(_) => {
                let stream = socket::BoundedTcp(stream);
                self.shake(acceptor, stream, address, silent).await
            }
        };
        let connection = shaken.map(|connection| Connection {
            ticket: Some(ticket),
            ..connection
        });
        match connection {
            Ok(connection) => self.hand_on(connection, place).await,
            Err((reason, problem)) => self.refuse(reason, address, &problem),
        }
    }

    /// The whole handshake: the first flight, which costs nothing, and the rest in its turn.
    async fn shake<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static>(
        &self,
        acceptor: TlsAcceptor,
        stream: S,
        address: SocketAddr,
        mut silent: Silent,
    ) -> Result<Connection, (Refusal, String)> {
        let failed = |error: io::Error| (dial::tls_refusal(&error), dial::tls_problem(&error));
        let late = |_| (Refusal::Timeout, "no TLS handshake in time".to_owned());
        let hearing = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
        let begun: StartHandshake<S> = tokio::select! {
            begun = timeout(FIRST_FLIGHT_TIMEOUT, hearing) => begun.map_err(late)?.map_err(failed)?,
            () = silent.given_up() => return Err(no_turn(NoTurn::Crowded)),
        };
        drop(silent);
        let network = Network::of(address.ip());
        let turn = self.turns.ask(network).turn(HANDSHAKE_TIMEOUT).await;
        let _turn = turn.map_err(no_turn)?;
        let handshake = begun.into_stream(acceptor.config().clone());
        let stream = timeout(HANDSHAKE_TIMEOUT, handshake).await;
        let stream = stream.map_err(late)?.map_err(failed)?;
        let judge = (&self.security, PeerSide::Client);
        Ok(streams::tls(stream.into(), address, judge, None))
    }

    async fn accept_unix(self, listener: UnixListener, path: PathBuf) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.accept_failed(&error).await;
                    continue;
                }
            };
            let Ok(ticket) = self.gate.admit(None) else {
                continue;
            };
            if socket::tune_unix(&stream).is_err() {
                continue;
            }
            let place = self.workers.as_ref().map(Workers::place);
            let stream = match &place {
                None => stream,
                Some(place) => match unix_to(place, stream) {
                    Ok(stream) => stream,
                    Err(error) => {
                        self.accept_failed(&error).await;
                        continue;
                    }
                },
            };
            let peer = PeerIdentity::plain(TransportKind::Unix, path.display());
            self.hand_on(streams::unix(stream, peer, Some(ticket)), place)
                .await;
        }
    }

    async fn accept_quic(self, endpoint: quinn::Endpoint) {
        loop {
            let Some(incoming) = endpoint.accept().await else {
                return;
            };
            let address = incoming.remote_address();
            let network = Network::of(address.ip());
            // Under load, a peer must prove that it owns its address before we do a handshake.
            let is_busy = self.turns.is_busy(network);
            if is_busy && !incoming.remote_address_validated() && incoming.may_retry() {
                let _ = incoming.retry();
                continue;
            }
            let Ok(ticket) = self.gate.admit(Some(address.ip())) else {
                incoming.refuse();
                continue;
            };
            let asked = self.turns.ask(network);
            let door = self.clone();
            let place = self.workers.as_ref().map(Workers::place);
            // quinn starts the connection's own task where `accept` is called.
            workers::runtime_of(place.as_ref()).spawn(async move {
                let _turn = match asked.turn(HANDSHAKE_TIMEOUT).await {
                    Ok(turn) => turn,
                    Err(why) => {
                        // The dialling side sends its packet again, and may then get a turn.
                        incoming.ignore();
                        let (reason, problem) = no_turn(why);
                        return door.refuse(reason, address, &problem);
                    }
                };
                let handshake = async {
                    let connection = incoming.accept()?.await?;
                    let streams = connection.accept_bi().await?;
                    Ok::<_, quinn::ConnectionError>((connection, streams))
                };
                match timeout(HANDSHAKE_TIMEOUT, handshake).await {
                    Ok(Ok((connection, streams))) => {
                        let judge = (&door.security, PeerSide::Client);
                        let connection = streams::quic(connection, streams, judge, Some(ticket));
                        door.hand_on(connection, place).await;
                    }
                    Ok(Err(error)) => {
                        let (reason, problem) = quic::refusal(&error);
                        door.refuse(reason, address, &problem);
                    }
                    Err(_) => door.refuse(Refusal::Timeout, address, "no stream in time"),
                }
            });
        }
    }

    async fn hand_on(&self, mut connection: Connection, place: Option<Place>) {
        connection.place = place;
        let _ = self.sender.send(connection).await;
    }

    fn refuse(&self, reason: Refusal, address: SocketAddr, problem: &str) {
        self.gate.refusals.count(reason);
        if is_distrust(problem) {
            tracing::warn!(peer = %address, "refused: {problem}");
        } else {
            tracing::info!(peer = %address, reason = reason.name(), "refused: {problem}");
        }
    }

    async fn accept_failed(&self, error: &io::Error) {
        self.gate.refusals.count(Refusal::System);
        tracing::warn!("cannot accept: {error}");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn no_turn(why: NoTurn) -> (Refusal, String) {
    match why {
        NoTurn::Crowded => (
            Refusal::Crowded,
            "too many handshakes of its network are under way".to_owned(),
        ),
        NoTurn::TooLate => (
            Refusal::Timeout,
            "no turn for its handshake in time".to_owned(),
        ),
    }
}

/// Moves the events of `stream` to the thread of `place`.
fn tcp_to(place: &Place, stream: TcpStream) -> io::Result<TcpStream> {
    let stream = stream.into_std()?;
    let _entered = place.runtime().enter();
    TcpStream::from_std(stream)
}

fn unix_to(place: &Place, stream: UnixStream) -> io::Result<UnixStream> {
    let stream = stream.into_std()?;
    let _entered = place.runtime().enter();
    UnixStream::from_std(stream)
}

/// The mode of a Unix socket: only its owner may use it. Whoever connects may be a switch, a
/// controller, or push a policy map.
const UNIX_MODE: Mode = Mode::from_bits_truncate(0o600);
/// Connections that wait to be accepted.
const UNIX_BACKLOG: i32 = 1024;

/// Binds a Unix socket of mode 0600, whatever the umask. Replaces a socket file that no process
/// listens on any more.
///
/// # Errors
/// The errors of `bind`. A file that is no socket, or a socket in use, stays as it is.
pub fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(refuses) {
        std::fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Linux makes the file with the socket's mode at that time, so it never has another mode.
    nix::sys::stat::fchmod(&socket, UNIX_MODE)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(UNIX_BACKLOG)?;
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket.into())
}
