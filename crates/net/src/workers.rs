//! Threads that connections are spread over. A connection stays on one thread from its handshake to
//! its end: its reads, decisions and writes cross no thread, and a busy connection delays only the
//! connections of its own thread.

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, watch};

/// The threads. They end when the last clone and the last [`Place`] are dropped.
#[derive(Clone)]
pub struct Workers {
    pool: Arc<Pool>,
}

struct Pool {
    threads: Vec<(Handle, Arc<Calls>)>,
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
        let mut threads = Vec::new();
        for worker in 0..count.get() {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let calls = Arc::new(Calls::default());
            threads.push((runtime.handle().clone(), calls.clone()));
            let mut ended = ended.clone();
            std::thread::Builder::new()
                .name(format!("worker-{worker}"))
                .spawn(move || {
                    runtime.block_on(async {
                        tokio::select! {
                            // Nothing is ever sent: an error means that the sender was dropped.
                            _ = ended.changed() => {}
                            () = calls.carry_out() => {}
                        }
                    });
                })?;
        }
        Ok(Workers {
            pool: Arc::new(Pool {
                threads,
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
    fn loads(&self) -> MutexGuard<'_, Vec<usize>> {
        self.loads.lock().expect("no panic while it is held")
    }
}

/// Tasks of one thread that are to be woken. Waking them one by one from another thread costs a
/// system call each; waking them together costs one.
#[derive(Default)]
pub struct Calls {
    waiting: Mutex<Vec<Waker>>,
    made: Notify,
}

impl Calls {
    /// Adds a task to wake at the next [`Calls::make`]. Returns true if no other task is waiting.
    pub fn add(&self, task: Waker) -> bool {
        let mut waiting = self.waiting();
        waiting.push(task);
        waiting.len() == 1
    }

    /// Wakes the thread, which wakes the tasks.
    pub fn make(&self) {
        self.made.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes tasks, for ever.
    async fn carry_out(&self) {
        let mut tasks = Vec::new();
        loop {
            self.made.notified().await;
            std::mem::swap(&mut tasks, &mut self.waiting());
            tasks.drain(..).for_each(Waker::wake);
        }
    }
}

impl Place {
    /// The number of the thread.
    pub fn worker(&self) -> usize {
        self.worker
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.pool.threads[self.worker].0
    }

    /// The calls that wake several tasks of the thread together.
    pub fn calls(&self) -> &Arc<Calls> {
        &self.pool.threads[self.worker].1
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

    #[test]
    fn tasks_of_a_thread_are_woken_together() {
        let workers = Workers::start(NonZeroUsize::MIN).unwrap();
        let place = workers.place();
        let (wakers, waiting) = std::sync::mpsc::channel();
        let tasks = [0; 3].map(|_| {
            let wakers = wakers.clone();
            let mut is_first = true;
            place.runtime().spawn(std::future::poll_fn(move |context| {
                if !std::mem::take(&mut is_first) {
                    return std::task::Poll::Ready(());
                }
                wakers.send(context.waker().clone()).unwrap();
                std::task::Poll::Pending
            }))
        });
        let adds: Vec<bool> = (waiting.iter().take(3))
            .map(|waker| place.calls().add(waker))
            .collect();
        assert_eq!(adds, [true, false, false]);
        place.calls().make();
        let patience = std::time::Duration::from_secs(20);
        for task in tasks {
            let ended = async { tokio::time::timeout(patience, task).await.is_ok() };
            assert!(place.runtime().block_on(ended));
        }
    }
}
