//! Faults between the members of a cluster, and between members and etcd: byte relays in front of
//! each that drop or delay traffic.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The other end of connections to etcd.
pub const ETCD: &str = "etcd";

/// Faults that can be set and mended while members run.
#[derive(Clone, Default)]
pub struct Between(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Pairs of names that do not reach each other, in their order.
    cut: BTreeSet<[String; 2]>,
    /// The number of times that cuts were mended.
    mended: u64,
    /// The connections, each by its ends.
    open: Vec<([String; 2], [TcpStream; 2])>,
    /// The time that each answer of etcd takes.
    delay: Duration,
}

/// Bytes, when they came, and whether they are to be delayed.
type Chunk = (Instant, Vec<u8>);

impl Between {
    /// The port of a relay to a member's bell. The dialling member sends its name first.
    pub fn members(&self, target: SocketAddr, name: &'static str) -> u16 {
        self.relay(target, move |stream| {
            let mut begin = vec![0; 4096];
            let length = stream.read(&mut begin).unwrap_or(0);
            begin.truncate(length);
            let text = String::from_utf8_lossy(&begin);
            let from = text.split("\"name\":\"").nth(1)?.split('"').next()?;
            Some((from.to_owned(), name, begin))
        })
    }

    /// The port of a relay to etcd, for one member.
    pub fn etcd(&self, target: SocketAddr, name: &'static str) -> u16 {
        self.relay(target, move |_| Some((name.to_owned(), ETCD, Vec::new())))
    }

    /// Drops the bytes between `a` and `b`, in both directions. Connections stay, and are silent.
    pub fn cut(&self, a: &str, b: &str) {
        self.state().cut.insert(pair(a, b));
    }

    /// Ends all cuts. Connections that were cut end.
    pub fn mend(&self) {
        let mut state = self.state();
        state.mended += 1;
        let cut = std::mem::take(&mut state.cut);
        state.open.retain(|(ends, streams)| {
            let is_cut = cut.contains(ends);
            for stream in streams.iter().filter(|_| is_cut) {
                let _ = stream.shutdown(Shutdown::Both);
            }
            !is_cut
        });
        self.0.changed.notify_all();
    }

    /// Delays each answer of etcd by `delay`.
    pub fn delay_etcd(&self, delay: Duration) {
        self.state().delay = delay;
        self.0.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn relay(
        &self,
        target: SocketAddr,
        begin: impl Fn(&mut TcpStream) -> Option<(String, &'static str, Vec<u8>)>
        + Clone
        + Send
        + 'static,
    ) -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let between = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (begin, between) = (begin.clone(), between.clone());
                std::thread::spawn(move || {
                    let mut stream = stream;
                    if let Some((from, to, first)) = begin(&mut stream) {
                        between.carry(stream, target, &pair(&from, to), &first, to == ETCD);
                    }
                });
            }
        });
        port
    }

    /// Carries one connection until it ends.
    fn carry(
        &self,
        near: TcpStream,
        target: SocketAddr,
        ends: &[String; 2],
        first: &[u8],
        is_etcd: bool,
    ) {
        let Ok(mut far) = TcpStream::connect(target) else {
            return;
        };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        if !self.may_pass(ends, Instant::now(), false) || far.write_all(first).is_err() {
            return;
        }
        let streams = [near.try_clone().unwrap(), far.try_clone().unwrap()];
        self.state().open.push((ends.clone(), streams));
        let pipes = [
            (near.try_clone().unwrap(), far.try_clone().unwrap(), false),
            (far, near, is_etcd),
        ];
        let pumps = pipes.map(|(from, to, is_delayed)| {
            let (between, ends) = (self.clone(), ends.clone());
            let (sender, receiver) = channel();
            let reader = from.try_clone().unwrap();
            std::thread::spawn(move || read(reader, &sender));
            std::thread::spawn(move || {
                between.write(&receiver, &to, &ends, is_delayed);
                // When one stream ends, the other ends too.
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            })
        });
        for pump in pumps {
            let _ = pump.join();
        }
    }

    fn write(
        &self,
        chunks: &Receiver<Chunk>,
        mut to: &TcpStream,
        ends: &[String; 2],
        is_delayed: bool,
    ) {
        while let Ok((came, bytes)) = chunks.recv() {
            if !self.may_pass(ends, came, is_delayed) || to.write_all(&bytes).is_err() {
                return;
            }
        }
    }

    /// Waits as long as the bytes must wait. Returns whether they pass: a cut drops them.
    fn may_pass(&self, ends: &[String; 2], came: Instant, is_delayed: bool) -> bool {
        let mut state = self.state();
        loop {
            if state.cut.contains(ends) {
                let mended = state.mended;
                let is_cut = |state: &mut State| state.mended == mended;
                drop(self.0.changed.wait_while(state, is_cut).unwrap());
                return false;
            }
            let due = came
                + if is_delayed {
                    state.delay
                } else {
                    Duration::ZERO
                };
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap().0;
        }
    }
}

fn read(mut from: TcpStream, chunks: &Sender<Chunk>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                if chunks
                    .send((Instant::now(), buffer[..length].to_vec()))
                    .is_err()
                {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn pair(a: &str, b: &str) -> [String; 2] {
    let mut pair = [a.to_owned(), b.to_owned()];
    pair.sort();
    pair
}
