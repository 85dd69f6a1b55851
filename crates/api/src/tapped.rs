//! `/v1/taps/OWNER/packets`: the packets of an owner's taps, as they arrive.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use data_encoding::BASE64;
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;
use super::query::Query;
use super::stream::{CHUNK_MAX, End, Form, HEARTBEAT, Writer};
use crate::rings::{Batch, Over, Packet, Ring};

/// Packets that a reader takes from the ring at once. The controller's thread may wait meanwhile,
/// as both lock the ring.
const AT_ONCE: usize = 64;
/// Time between two writes. Packets that arrive meanwhile are written together.
const TOGETHER: Duration = Duration::from_millis(1);

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(packets))
}

/// The packets of an owner's taps, as they come, or behind a number that is still kept.
///
/// With `Accept: text/event-stream` they are server-sent events with the number as `id`; else one
/// JSON document a line. Where packets were left out, an event `shed` has their number. This takes
/// the role operate: packets are the contents of the network.
#[utoipa::path(get, path = "/v1/taps/{owner}/packets", tag = "applications",
    operation_id = "tapped_packets",
    params(
        ("owner" = String, Path, example = "lesson"),
        ("since" = Option<u64>, Query,
            description = "The number of the last packet that is known; 0 for all that are kept"),
        ("on_disconnect" = Option<String>, Query,
            description = "`keep`, or `remove`: taps and static entries of the owner go when \
                           nobody has read its packets for 10 s"),
    ),
    responses(
        (status = 200, content(
            (String = "text/event-stream"),
            (String = "application/x-ndjson"),
        )),
        (status = 400),
        (status = 404, description = "The owner has no taps"),
        (status = 503, description = "32 streams are read already"),
    ))]
async fn packets(
    State(api): State<Api>,
    Path(owner): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let Asked {
        form,
        since,
        is_removed,
    } = asked(request.uri().query(), request.headers())?;
    if is_removed && api.driver.ask(|it| it.cluster().is_some()).await == Some(true) {
        // The application's settings belong to the cluster, and another member may serve its
        // reader.
        let detail = "on_disconnect: in a cluster nothing goes with an application; DELETE it";
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let ring = api.reads.taps.of(&owner).ok_or_else(|| {
        let detail = format!("{owner} has no taps");
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    let (writer, response) = api.open_stream(request.extensions(), form)?;
    // Create the reader before the answer begins, so that the answer has all later packets.
    let mut reader = Reader::new(&ring, form, since);
    tokio::spawn(async move {
        if let Err(End::Slow) = reader.run(&ring, &writer).await {
            writer.cut(reader.cut()).await;
        }
        if is_removed {
            api.depart(owner);
        }
    });
    Ok(response)
}

/// The form of a stream, its first number, and whether its end removes the owner's settings.
struct Asked {
    form: Form,
    since: Option<u64>,
    is_removed: bool,
}

fn asked(query: Option<&str>, headers: &HeaderMap) -> Result<Asked, Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let accepts = text(header::ACCEPT.as_str()).unwrap_or_default();
    let form = match accepts.contains("text/event-stream") {
        true => Form::Sse,
        false => Form::Ndjson,
    };
    let mut query = Query::of(query);
    let since = query.read("since", |text| {
        let number = text.parse::<u64>();
        number.map_err(|_| format!("'{text}' is not the number of a packet"))
    });
    let is_removed = query.read("on_disconnect", |text| match text {
        "keep" => Ok(false),
        "remove" => Ok(true),
        _ => Err(format!("'{text}' is neither keep nor remove")),
    });
    query.only(&["since", "on_disconnect"])?;
    let last = text("last-event-id").filter(|_| form == Form::Sse);
    let last = last.and_then(|last| last.trim().parse().ok());
    Ok(Asked {
        form,
        since: last.or(since),
        is_removed: is_removed.unwrap_or(false),
    })
}

/// The progress of a reader.
struct Reader {
    form: Form,
    /// The last number that was delivered or left out.
    at: u64,
    /// Whether the reader's number was not from this ring.
    is_reset: bool,
}

impl Reader {
    fn new(ring: &Ring, form: Form, since: Option<u64>) -> Reader {
        let (last, base) = ring.numbers();
        let is_known = |since: u64| (base..=last).contains(&since);
        match since {
            None => Reader {
                form,
                at: last,
                is_reset: false,
            },
            Some(0) => Reader {
                form,
                at: base,
                is_reset: false,
            },
            Some(since) => Reader {
                form,
                at: if is_known(since) { since } else { base },
                is_reset: !is_known(since),
            },
        }
    }

    async fn run(&mut self, ring: &Arc<Ring>, writer: &Writer) -> Result<(), End> {
        let mut last = ring.watch();
        // The first bytes send the head of the answer.
        let mut first = self.form.heartbeat().to_owned();
        if self.is_reset {
            let document = json!({"event": "reset", "reason": "unknown"});
            self.form.write(&mut first, None, &document.to_string());
        }
        writer.write(first, || false).await?;
        let mut written = Instant::now();
        loop {
            last.borrow_and_update();
            let batch = ring.after(self.at, AT_ONCE, CHUNK_MAX / 2);
            let chunk = self.take(&batch);
            if !chunk.is_empty() {
                writer.write(chunk, || false).await?;
                written = Instant::now();
                continue;
            }
            if let Some(over) = batch.over {
                if let Over::Moved(to) = over {
                    writer.write(self.moved(to), || false).await?;
                }
                return Ok(());
            }
            tokio::select! {
                changed = last.changed() => match changed {
                    Ok(()) => sleep_until(written + TOGETHER).await,
                    Err(_) => return Ok(()),
                },
                () = sleep_until(written + HEARTBEAT) => {
                    writer.write(self.form.heartbeat().to_owned(), || false).await?;
                    written = Instant::now();
                }
                () = writer.closed() => return Err(End::Gone),
            }
        }
    }

    /// Advances to the end of a batch. Returns the batch as text, with events for the packets left
    /// out.
    fn take(&mut self, batch: &Batch) -> String {
        let mut chunk = String::new();
        for packet in &batch.packets {
            self.shed_until(packet.seq - 1, &mut chunk);
            let document = document(packet).to_string();
            self.form.write(&mut chunk, Some(packet.seq), &document);
            self.at = packet.seq;
        }
        self.shed_until(batch.until, &mut chunk);
        chunk
    }

    fn shed_until(&mut self, seq: u64, chunk: &mut String) {
        let count = seq.saturating_sub(self.at);
        if count > 0 {
            let document = json!({"seq": seq, "event": "shed", "count": count});
            self.form.write(chunk, Some(seq), &document.to_string());
            self.at = seq;
        }
    }

    /// The last event of a member that no longer serves the switches.
    fn moved(&self, served_by: Option<String>) -> String {
        let detail = "another member of the cluster serves the switches: set the taps there";
        let document = json!({
            "seq": self.at, "event": "moved", "served_by": served_by, "detail": detail,
        });
        let mut text = String::new();
        self.form
            .write(&mut text, Some(self.at), &document.to_string());
        text
    }

    fn cut(&self) -> String {
        let detail = "the reader takes nothing: read on from this number";
        let document = json!({"seq": self.at, "event": "cut", "detail": detail});
        let mut text = String::new();
        self.form
            .write(&mut text, Some(self.at), &document.to_string());
        text
    }
}

fn document(packet: &Packet) -> serde_json::Value {
    let time = packet.time.duration_since(UNIX_EPOCH);
    json!({
        "seq": packet.seq,
        "event": "packet_in",
        "tap": *packet.tap,
        "at": packet.at.to_string(),
        "bytes": packet.total_len,
        "data": BASE64.encode(&packet.data),
        "time_s": time.map_or(0.0, |time| time.as_secs_f64()),
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use control::Location;
    use openflow::{DatapathId, PortNo};

    use super::*;

    fn packet(seq: u64) -> Arc<Packet> {
        Arc::new(Packet {
            seq,
            tap: "arp".into(),
            at: Location::new(DatapathId(1), PortNo(2)),
            total_len: 60,
            data: vec![0xff; 6].into(),
            time: SystemTime::UNIX_EPOCH,
        })
    }

    #[test]
    fn the_numbers_that_are_left_out_are_counted_where_they_would_be() {
        let mut reader = Reader {
            form: Form::Ndjson,
            at: 10,
            is_reset: false,
        };
        let batch = Batch {
            packets: vec![packet(11), packet(14)],
            until: 16,
            over: None,
        };
        let text = reader.take(&batch);
        let seq_11 = r#"{"seq":11,"event":"packet_in","tap":"arp","at":"0000000000000001:2","#;
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with(seq_11), "{text}");
        assert!(
            lines[0].ends_with(r#""bytes":60,"data":"////////","time_s":0.0}"#),
            "{text}"
        );
        assert_eq!(lines[1], r#"{"seq":13,"event":"shed","count":2}"#);
        assert_eq!(lines[3], r#"{"seq":16,"event":"shed","count":2}"#);
        assert_eq!((lines.len(), reader.at), (4, 16));
        let batch = Batch {
            packets: Vec::new(),
            ..batch
        };
        assert_eq!(reader.take(&batch), "");
    }
}
