//! The place where one agent writes its messages, once there are connections.

use std::io;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use net::alarm::Alarm;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, Notify};

pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// An ordered byte stream that agents may share.
pub type Lane = Arc<Mutex<Writer>>;

pub fn lane(writer: impl AsyncWrite + Send + Unpin + 'static) -> Lane {
    Arc::new(Mutex::new(Box::new(writer)))
}

/// The place where an agent writes its messages.
pub enum Outlet {
    Lane(Lane),
    /// One message on each lane in turn.
    RoundRobin {
        lanes: Vec<Lane>,
        next: usize,
    },
    /// A stream of its own for each message.
    PerMessage(quinn::Connection),
    /// A hold that writes the messages of one window together.
    Held {
        hold: Arc<Hold>,
        lane: usize,
    },
}

impl Outlet {
    /// Returns when this process has done its part: the message is written, or held for the window.
    pub async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Outlet::Lane(lane) => write(lane, message).await,
            Outlet::RoundRobin { lanes, next } => {
                let lane = &lanes[*next];
                *next = (*next + 1) % lanes.len();
                write(lane, message).await
            }
            Outlet::PerMessage(connection) => {
                let mut stream = connection.open_uni().await?;
                stream.write_all(message).await?;
                stream.finish()?;
                Ok(())
            }
            Outlet::Held { hold, lane } => {
                hold.put(*lane, message);
                Ok(())
            }
        }
    }
}

async fn write(lane: &Lane, message: &[u8]) -> io::Result<()> {
    let mut writer = lane.lock().await;
    writer.write_all(message).await?;
    // TLS may hold a record that the socket did not take.
    writer.flush().await
}

/// Messages of one connection that wait for the window to close. The first message opens it.
pub struct Hold {
    window: Duration,
    waiting: StdMutex<Waiting>,
    opened: Notify,
    lanes: Vec<Lane>,
}

struct Waiting {
    of_lane: Vec<BytesMut>,
    since: Option<Instant>,
}

impl Hold {
    pub fn new(window: Duration, lanes: Vec<Lane>) -> Arc<Hold> {
        Arc::new(Hold {
            window,
            waiting: StdMutex::new(Waiting {
                of_lane: vec![BytesMut::new(); lanes.len()],
                since: None,
            }),
            opened: Notify::new(),
            lanes,
        })
    }

    fn put(&self, lane: usize, message: &[u8]) {
        let mut waiting = self.lock();
        waiting.of_lane[lane].extend_from_slice(message);
        if waiting.since.is_none() {
            waiting.since = Some(Instant::now());
            self.opened.notify_one();
        }
    }

    /// Writes the waiting messages at the end of each window.
    pub async fn run(self: Arc<Hold>) -> io::Result<()> {
        let mut alarm = Alarm::new()?;
        loop {
            let since = self.lock().since;
            let Some(since) = since else {
                self.opened.notified().await;
                continue;
            };
            alarm.wait_until(since + self.window).await?;
            let due: Vec<BytesMut> = {
                let mut waiting = self.lock();
                waiting.since = None;
                waiting.of_lane.iter_mut().map(BytesMut::split).collect()
            };
            for (lane, bytes) in self.lanes.iter().zip(due) {
                if !bytes.is_empty() {
                    write(lane, &bytes).await?;
                }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn what_comes_within_the_window_is_written_together() {
        let (left, mut right) = tokio::io::duplex(1000);
        let hold = Hold::new(Duration::from_millis(20), vec![lane(left)]);
        let mut outlet = Outlet::Held {
            hold: hold.clone(),
            lane: 0,
        };
        let flusher = tokio::spawn(hold.run());
        let mut buffer = [0; 100];
        for round in [b"one", b"two"] {
            outlet.send(round).await.unwrap();
            outlet.send(b"+").await.unwrap();
            let len = right.read(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..len], [&round[..], b"+"].concat());
        }
        flusher.abort();
    }

    #[tokio::test]
    async fn round_robin_goes_round() {
        let (a, mut a_end) = tokio::io::duplex(100);
        let (b, mut b_end) = tokio::io::duplex(100);
        let mut outlet = Outlet::RoundRobin {
            lanes: vec![lane(a), lane(b)],
            next: 0,
        };
        for message in [b"1", b"2", b"3"] {
            outlet.send(message).await.unwrap();
        }
        let mut buffer = [0; 10];
        assert_eq!(a_end.read(&mut buffer).await.unwrap(), 2);
        assert_eq!(&buffer[..2], b"13");
        assert_eq!(b_end.read(&mut buffer).await.unwrap(), 1);
    }
}
