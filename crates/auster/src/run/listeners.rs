//! The sockets that switches connect to and the switches that are dialled, while the configuration
//! changes.
//!
//! A removed listener accepts no new connections; the connections it has accepted stay up. A switch
//! that is no longer dialled loses its connection.

use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use control::ConnectionId;
use driver::reconnect::Reconnect;
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use net::transport::{Connection, Limits, Listener, TransportError, connect_at};
use net::workers::Workers;
use tokio::task::JoinHandle;

use super::ControllerDriver;
use api::metrics::{RefusalsOfAll, Refused};
use config::settings::sockets::warn_if_exposed;

/// Attempts to bind an address that a listener of ours has just left, and the pause between them.
const TRIES: usize = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// A listener that is bound and does not serve yet.
pub struct Bound {
    stated: Method,
    listener: Listener,
}

impl Bound {
    pub fn local(&self) -> &Method {
        self.listener.local()
    }

    pub fn has_accepted(&self, stream: &TcpStream) -> bool {
        self.listener.has_accepted(stream)
    }

    pub fn adopt(&self, stream: TcpStream) -> Option<Connection> {
        self.listener.adopt(stream)
    }

    pub fn refusals(&self) -> Refused {
        let refusals = self.listener.refusals().clone();
        (self.local().to_string(), refusals)
    }
}

struct Open {
    stated: Method,
    local: String,
    task: JoinHandle<()>,
}

struct Dialled {
    method: Method,
    task: JoinHandle<()>,
    connection: Arc<Mutex<Option<ConnectionId>>>,
}

pub struct Listeners {
    driver: Arc<ControllerDriver>,
    workers: Workers,
    security: Security,
    refusals: RefusalsOfAll,
    open: Vec<Open>,
    dialled: Vec<Dialled>,
    dialled_ever: u64,
}

impl Listeners {
    pub fn new(
        driver: Arc<ControllerDriver>,
        workers: Workers,
        security: Security,
        refusals: RefusalsOfAll,
    ) -> Listeners {
        Listeners {
            driver,
            workers,
            security,
            refusals,
            open: Vec::new(),
            dialled: Vec::new(),
            dialled_ever: 0,
        }
    }

    /// Binds the wanted methods that are not open yet. If that fails, closes the listeners that are
    /// not wanted, as they may occupy an address, and tries again. If that fails too, opens them
    /// again.
    pub async fn bind(&mut self, wanted: &[Method]) -> Result<Vec<Bound>, Vec<String>> {
        let fresh = wanted.iter().filter(|method| !self.has(method));
        let fresh: Vec<Method> = fresh.cloned().collect();
        let (mut bound, mut failed) = (Vec::new(), Vec::new());
        for method in fresh {
            match bind(&self.workers, &method, &self.security).await {
                Ok(listener) => bound.push(listener),
                Err(error) => failed.push((method, error)),
            }
        }
        let is_gone = |open: &Open| !wanted.contains(&open.stated);
        if failed.is_empty() {
            return Ok(bound);
        }
        if !self.open.iter().any(is_gone) {
            return Err(failed.iter().map(|(_, error)| error.to_string()).collect());
        }
        let closed = self.close_but(wanted).await;
        let mut mistakes = Vec::new();
        for (method, _) in failed {
            match self.bind_soon(&method).await {
                Ok(listener) => bound.push(listener),
                Err(error) => mistakes.push(error.to_string()),
            }
        }
        if mistakes.is_empty() {
            return Ok(bound);
        }
        drop(bound);
        for method in closed {
            match self.bind_soon(&method).await {
                Ok(listener) => self.serve(vec![listener]),
                Err(error) => mistakes.push(format!("{method} is closed now: {error}")),
            }
        }
        Err(mistakes)
    }

    async fn bind_soon(&self, method: &Method) -> Result<Bound, TransportError> {
        let mut last = bind(&self.workers, method, &self.security).await;
        for _ in 0..TRIES {
            if last.is_ok() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            last = bind(&self.workers, method, &self.security).await;
        }
        last
    }

    fn has(&self, method: &Method) -> bool {
        self.open.iter().any(|open| open.stated == *method)
    }

    /// Serves the connections that these listeners accept.
    pub fn serve(&mut self, bound: Vec<Bound>) {
        for Bound { stated, listener } in bound {
            let refusals = (listener.local().to_string(), listener.refusals().clone());
            let local = refusals.0.clone();
            self.refusals.change(|all| {
                if all.iter().all(|(name, _)| *name != local) {
                    all.push(refusals);
                }
            });
            let task = self.driver.serve_listener(listener);
            self.open.push(Open {
                stated,
                local,
                task,
            });
        }
    }

    /// Closes all listeners but these. Returns those that were closed.
    pub async fn close_but(&mut self, wanted: &[Method]) -> Vec<Method> {
        let is_wanted = |open: &mut Open| wanted.contains(&open.stated);
        let gone: Vec<Open> = self.open.extract_if(.., |open| !is_wanted(open)).collect();
        let mut closed = Vec::new();
        for Open {
            stated,
            local,
            task,
        } in gone
        {
            task.abort();
            let _ = task.await;
            self.refusals
                .change(|all| all.retain(|(name, _)| *name != local));
            closed.push(stated);
        }
        closed
    }

    /// Dials these switches and no others.
    pub async fn dial(&mut self, wanted: &[Method]) {
        let is_gone = |dialled: &mut Dialled| !wanted.contains(&dialled.method);
        let gone: Vec<Dialled> = self.dialled.extract_if(.., is_gone).collect();
        for dialled in gone {
            dialled.task.abort();
            let _ = dialled.task.await;
            let connection = dialled.connection.lock();
            if let Some(id) = *connection.unwrap_or_else(PoisonError::into_inner) {
                self.driver.end(id);
            }
        }
        for method in wanted {
            if self.dialled.iter().any(|dialled| dialled.method == *method) {
                continue;
            }
            warn_if_exposed(method);
            let connection = Arc::default();
            let dialler = keep_connected(
                (self.driver.clone(), self.workers.clone()),
                method.clone(),
                self.security.clone(),
                self.dialled_ever,
                Arc::clone(&connection),
            );
            self.dialled_ever += 1;
            self.dialled.push(Dialled {
                method: method.clone(),
                task: tokio::spawn(dialler),
                connection,
            });
        }
    }

    /// Stops accepting and dialling.
    pub fn stop(&self) {
        self.open.iter().for_each(|open| open.task.abort());
        self.dialled.iter().for_each(|dialled| dialled.task.abort());
    }
}

async fn bind(
    workers: &Workers,
    method: &Method,
    security: &Security,
) -> Result<Bound, TransportError> {
    let bound = Listener::bind_over(Some(workers), method, security, Limits::default()).await;
    bound.map(|listener| Bound {
        stated: method.clone(),
        listener,
    })
}

/// Dials until the task is aborted. `current` has the connection being served.
async fn keep_connected(
    (driver, workers): (Arc<ControllerDriver>, Workers),
    method: Method,
    security: Security,
    seed: u64,
    current: Arc<Mutex<Option<ConnectionId>>>,
) {
    let clock = Clock::start();
    let mut reconnect = Reconnect::new(seed ^ u64::from(std::process::id()));
    let mut told: Option<String> = None;
    let set = |id| *current.lock().unwrap_or_else(PoisonError::into_inner) = id;
    loop {
        match connect_at(workers.place(), &method, &security).await {
            Ok(connection) => {
                told = None;
                reconnect.handle_connected(clock.now());
                let (id, served) = driver.serve(connection);
                set(Some(id));
                let _ = served.await;
                set(None);
            }
            Err(error @ TransportError::Local { .. }) => {
                tracing::error!("{error}");
            }
            Err(error) => {
                let problem = error.to_string();
                if told.as_ref() != Some(&problem) {
                    tracing::warn!("{problem}; trying again");
                }
                told = Some(problem);
            }
        }
        let due = reconnect.handle_disconnected(clock.now());
        tokio::time::sleep_until(clock.deadline(due)).await;
    }
}
