//! Threads that connections are spread over. A connection stays on the thread it was given to, from
//! its handshake to its end: what it reads, decides and writes crosses no thread, and a busy one
//! delays those of its own thread only.

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// The threads. They end when the last clone and the last [`Place`] are gone.
#[derive(Clone)]
pub struct Workers {
    pool: Arc<Pool>,
}

struct Pool {
    runtimes: Vec<Handle>,
    /// Connections of each thread.
    loads: Mutex<Vec<usize>>,
    /// The threads run until it is dropped.
    _running: watch::Sender<()>,
}

/// One connection's place on a thread, until it is dropped.
pub struct Place {
    pool: Arc<Pool>,
    worker: usize,
}

impl Workers {
    /// The number of cores that this process may use, one thread for each.
    pub fn count_default() -> NonZeroUsize {
        std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
    }

    pub fn start(count: NonZeroUsize) -> io::Result<Workers> {
        let (running, ended) = watch::channel(());
        let mut runtimes = Vec::new();
        for worker in 0..count.get() {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtimes.push(runtime.handle().clone());
            let mut ended = ended.clone();
            std::thread::Builder::new()
                .name(format!("worker-{worker}"))
                .spawn(move || {
                    // Nothing is ever sent: an error says that the sender is gone.
                    let _ = runtime.block_on(ended.changed());
                })?;
        }
        Ok(Workers {
            pool: Arc::new(Pool {
                runtimes,
                loads: Mutex::new(vec![0; count.get()]),
                _running: running,
            }),
        })
    }

    /// A place on the thread with the fewest connections.
    pub fn place(&self) -> Place {
        let mut loads = self.pool.loads();
        let least = loads.iter().enumerate().min_by_key(|(_, load)| **load);
        let worker = least.map_or(0, |(worker, _)| worker);
        loads[worker] += 1;
        drop(loads);
        Place {
            pool: self.pool.clone(),
            worker,
        }
    }

    /// Connections of each thread.
    pub fn loads(&self) -> Vec<usize> {
        self.pool.loads().clone()
    }
}

impl Pool {
    fn loads(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.loads.lock().expect("no panic while it is held")
    }
}

impl Place {
    /// The number of its thread.
    pub fn worker(&self) -> usize {
        self.worker
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.pool.runtimes[self.worker]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.loads()[self.worker] -= 1;
    }
}

/// The runtime of `place`, or the caller's.
pub fn runtime_of(place: Option<&Place>) -> Handle {
    place.map_or_else(Handle::current, |place| place.runtime().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_with_the_fewest_connections_is_next() {
        let workers = Workers::start(NonZeroUsize::new(3).unwrap()).unwrap();
        let mut places: Vec<Place> = (0..7).map(|_| workers.place()).collect();
        assert_eq!(workers.loads(), [3, 2, 2]);
        places.retain(|place| place.worker() != 1);
        assert_eq!(workers.loads(), [3, 0, 2]);
        assert_eq!(
            [workers.place(), workers.place()].map(|place| place.worker()),
            [1, 1]
        );
    }

    #[test]
    fn threads_end_with_the_last_connection() {
        let workers = Workers::start(NonZeroUsize::MIN).unwrap();
        let place = workers.place();
        let (never, ended) = std::sync::mpsc::channel::<()>();
        place.runtime().spawn(async move {
            let _held = never;
            std::future::pending::<()>().await;
        });
        drop(workers);
        assert!(ended.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected));
        drop(place);
        let patience = std::time::Duration::from_secs(20);
        assert_eq!(
            ended.recv_timeout(patience),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
        );
    }
}
