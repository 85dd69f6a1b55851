//! The connections over which a serving member reports its hosts and links, one to each standby
//! member. They are separate from the bells, so that heartbeats do not wait behind a million hosts.
//!
//! The serving member dials the address of the others' bells, and first states the purpose of the
//! connection. It writes as fast as its peer reads, and only then asks the application for the next
//! frame. So nothing queues, and a peer that was too slow gets a whole copy again.
//!
//! | what a peer can make grow | bound | at the bound |
//! | --- | --- | --- |
//! | a frame | [`FRAME_BYTES_MAX`] | the connection is closed |
//! | hosts and links in a second | [`LEARNED_PER_S`] | the rest waits in the connection |
//! | the time to the next frame | [`SILENCE_MAX`] | the connection is closed |
//! | hosts and links | what the controller's own tables take | passed over, counted |

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::Budget;
use control::cluster::MemberId;
use control::clustered::{
    Batch, Clustered, FRAME_BYTES_MAX, Follower, LENGTH_BYTES, Learned, Listener, Said,
};
use net::method::Method;
use net::tls::Security;
use net::transport::{Connection, Reader, Writer, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::{sleep, timeout};

use super::Handle;
use super::documents::{self, CopyHello};

/// The pause between two frames while there are few changes. Changes within a pause share a frame.
const PAUSE: Duration = Duration::from_millis(10);
/// The pause while this member does not serve.
const IDLE_PAUSE: Duration = Duration::from_millis(200);
/// The pause before a member is dialled again. Its bell reports the cause.
const DIAL_AGAIN: Duration = Duration::from_secs(1);
/// A write that takes longer ends the connection.
const WRITE_MAX: Duration = Duration::from_secs(10);
/// The longest time without a frame before the connection is closed: a frame is due each half
/// second.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Hosts and links that the application accepts in a second. They take less than half of its time.
const LEARNED_PER_S: u32 = 250_000;
const LEARNED_BURST: u32 = 25_000;

/// Reports hosts and links to a peer, while the peer is a member and this member serves.
pub async fn keep_saying(
    own: MemberId,
    method: Method,
    security: Security,
    handle: Handle,
    is_member: &AtomicBool,
) -> Infallible {
    loop {
        let serves = |application: &mut Clustered| {
            let shards = application.cluster().map(|cluster| cluster.shards());
            shards.is_some_and(|shards| shards.iter().any(|shard| shard.is_held))
        };
        let is_member = is_member.load(Ordering::Relaxed);
        if !is_member || handle.driver.ask(serves).await != Some(true) {
            sleep(IDLE_PAUSE).await;
            continue;
        }
        if let Ok(connection) = connect(&method, &security).await {
            say(&own, connection, &handle).await;
        }
        sleep(DIAL_AGAIN).await;
    }
}

async fn say(own: &MemberId, connection: Connection, handle: &Handle) {
    let (mut reader, mut writer) = (connection.reader, connection.writer);
    let hello = CopyHello {
        auster_copy: documents::COPY_VERSION,
        name: own.to_string(),
    };
    if !write(&mut writer, &documents::line(&hello)).await {
        return;
    }
    let mut follower = Follower::default();
    let mut byte = [0];
    loop {
        let (clock, mut given) = (handle.clock, follower.clone());
        let asked = handle.driver.ask(move |application| {
            let said = application.say(clock.now(), &mut given);
            (given, said)
        });
        let mut pause = PAUSE;
        match asked.await {
            Some((_, Said::NotServing)) => return,
            Some((next, Said::Frame { bytes, has_more })) => {
                if !write(&mut writer, &bytes).await {
                    return;
                }
                follower = next;
                pause = if has_more { Duration::ZERO } else { PAUSE };
            }
            Some((next, Said::Nothing)) => follower = next,
            // The application is busy, or has ended.
            None => {}
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = handle.driver.ended() => return,
            // The listening member sends nothing.
            _ = reader.read(&mut byte) => return,
        }
    }
}

async fn write(writer: &mut Writer, bytes: &[u8]) -> bool {
    let written = timeout(WRITE_MAX, async {
        writer.write_all(bytes).await?;
        writer.flush().await
    });
    matches!(written.await, Ok(Ok(())))
}

/// Passes the hosts and links that a member reports to the application.
pub async fn hear(from: MemberId, mut reader: BufReader<Reader>, handle: Handle) {
    let mut listener = Listener::default();
    let mut budget = Budget::new(handle.now(), LEARNED_PER_S, LEARNED_BURST);
    while let Ok(Some(frame)) = timeout(SILENCE_MAX, frame_of(&mut reader)).await {
        let Some(mut batch) = Batch::read(&frame) else {
            tracing::warn!("cluster: member {from}: says of hosts what this version cannot read");
            return;
        };
        let count = u32::try_from(batch.cost()).unwrap_or(u32::MAX);
        let count = count.min(LEARNED_BURST);
        while !budget.take_many(handle.now(), count) {
            sleep(PAUSE).await;
        }
        loop {
            let (id, mut given) = (from.clone(), listener);
            let learned = handle.application(move |application, now| {
                let learned = application.learn(now, &id, &mut given, &mut batch);
                (given, batch, learned)
            });
            let Some((then, rest, learned)) = learned.await else {
                return;
            };
            (listener, batch) = (then, rest);
            match learned {
                Learned::More => {}
                Learned::Done => break,
                Learned::Refused => return,
            }
        }
    }
}

/// Reads the next frame without its length; `None` at the end of the stream, and for a frame that
/// is too long.
async fn frame_of(reader: &mut BufReader<Reader>) -> Option<Vec<u8>> {
    let mut length = [0; LENGTH_BYTES];
    reader.read_exact(&mut length).await.ok()?;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    let mut frame = vec![0; Some(length).filter(|length| *length <= FRAME_BYTES_MAX)?];
    reader.read_exact(&mut frame).await.ok()?;
    Some(frame)
}
