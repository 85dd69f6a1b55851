//! One emulated switch on its connection: read, judge, send, in as few calls as possible.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use net::transport::{Connection, Reader, Writer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::plan::Control;
use super::switch::{Broken, Delays, Switch};

/// More than a socket holds at once; shared by the switches of a thread.
const READ_BYTES: usize = 256 << 10;
/// Unsent bytes above which reading stops: the peer sends requests and reads nothing.
pub const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Reads in a row before the next switch's turn.
const READS_MAX: usize = 4;

/// The state that the switches of a thread share.
pub struct Shared {
    pub control: Arc<Control>,
    pub delays: RefCell<Delays>,
    read_buffer: RefCell<Vec<u8>>,
}

impl Shared {
    pub fn new(control: Arc<Control>) -> Shared {
        Shared {
            control,
            delays: RefCell::default(),
            read_buffer: RefCell::new(vec![0; READ_BYTES]),
        }
    }
}

/// A switch between its connection and the thread's pacer.
pub struct Emulated {
    pub switch: Switch,
    /// Bytes to be written. Callers that add to it call [`Emulated::wake`].
    pub out: Vec<u8>,
    /// Whether the switch has a connection.
    pub is_up: bool,
    waker: Option<Waker>,
}

impl Emulated {
    pub fn new(switch: Switch) -> Emulated {
        Emulated {
            switch,
            out: Vec::new(),
            is_up: false,
            waker: None,
        }
    }

    pub fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// How a connection ended.
#[derive(Debug)]
pub enum End {
    Closed,
    Failed(io::Error),
    Broken(Broken),
}

/// Serves a switch until the connection ends.
pub async fn serve(
    emulated: Rc<RefCell<Emulated>>,
    connection: Connection,
    shared: &Shared,
) -> End {
    let mut io = Io {
        reader: connection.reader,
        writer: connection.writer,
        part: Vec::new(),
        written: 0,
        must_flush: false,
    };
    // Keeps the listener's place as long as the two halves exist.
    let _ticket = connection.ticket;
    std::future::poll_fn(|context| {
        let emulated = &mut *emulated.borrow_mut();
        match &mut emulated.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        io.poll(context, emulated, shared)
    })
    .await
}

struct Io {
    reader: Reader,
    writer: Writer,
    /// The start of a message whose rest has not arrived.
    part: Vec<u8>,
    /// Bytes of [`Emulated::out`] already sent.
    written: usize,
    must_flush: bool,
}

impl Io {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        emulated: &mut Emulated,
        shared: &Shared,
    ) -> Poll<End> {
        for _ in 0..READS_MAX {
            let may_read = emulated.out.len() - self.written < UNSENT_BYTES_MAX;
            let read = match may_read {
                true => self.poll_read(context, emulated, shared),
                false => Poll::Pending,
            };
            if let Poll::Ready(Some(end)) = read {
                return Poll::Ready(end);
            }
            if emulated.out.is_empty() {
                let now_ns = shared.control.now_ns();
                emulated.switch.fill(now_ns, &mut emulated.out);
            }
            if let Poll::Ready(Err(error)) = self.poll_write(context, &mut emulated.out) {
                return Poll::Ready(End::Failed(error));
            }
            if read.is_pending() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once and handles the messages; `Some` if the connection is over.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        emulated: &mut Emulated,
        shared: &Shared,
    ) -> Poll<Option<End>> {
        let mut buffer = shared.read_buffer.borrow_mut();
        let part_len = self.part.len();
        buffer[..part_len].copy_from_slice(&self.part);
        let mut into = ReadBuf::new(&mut buffer[part_len..]);
        match Pin::new(&mut self.reader).poll_read(context, &mut into) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Some(End::Failed(error))),
            Poll::Ready(Ok(())) => {}
        }
        let read = into.filled().len();
        if read == 0 {
            return Poll::Ready(Some(End::Closed));
        }
        let bytes = &buffer[..part_len + read];
        let now_ns = shared.control.now_ns();
        let delays = &mut *shared.delays.borrow_mut();
        let Emulated { switch, out, .. } = emulated;
        match switch.handle_bytes(now_ns, bytes, delays, out) {
            Ok(consumed) => {
                for crossing in switch.crossings.drain(..) {
                    shared.control.links.send(crossing);
                }
                self.part.clear();
                self.part.extend_from_slice(&bytes[consumed..]);
                Poll::Ready(None)
            }
            Err(broken) => Poll::Ready(Some(End::Broken(broken))),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<io::Result<()>> {
        while self.written < out.len() {
            let writer = Pin::new(&mut self.writer);
            match writer.poll_write(context, &out[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => {
                    self.written += written;
                    self.must_flush = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        out.clear();
        self.written = 0;
        if self.must_flush {
            // TLS may still hold the last record.
            if let Poll::Ready(flushed) = Pin::new(&mut self.writer).poll_flush(context) {
                self.must_flush = false;
                return Poll::Ready(flushed);
            }
        }
        Poll::Ready(Ok(()))
    }
}
