//! `/v1/events`: the events of `auster run`, each with its number, as they happen or from any
//! number that is still kept.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use openflow::DatapathId;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;
use super::query::{Query, flag};
use super::stream::{CHUNK_MAX, End, Form, HEARTBEAT, Writer};
use crate::feed::ring::{Missed, Numbered};
use crate::feed::{Batch, Feed};
use crate::kinds::event_kind;

/// A reader that is further behind is cut off.
const BEHIND_MAX: u64 = 1 << 20;
/// The most events examined between two checks of the reader.
const AT_ONCE: usize = 512;
/// Events within this time are written together.
const TOGETHER: Duration = Duration::from_millis(20);
/// The most bytes of the kinds for which a reader may ask.
const KINDS_MAX: usize = 4096;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(events))
}

/// The events that a reader wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// All kinds if empty.
    kinds: Vec<String>,
    switch: Option<DatapathId>,
}

impl Wanted {
    /// Whether the reader wants an event. Every reader wants a reset.
    fn has(&self, event: &Numbered) -> bool {
        if &*event.kind == "reset" {
            return true;
        }
        let is_kind = self.kinds.is_empty() || self.kinds.iter().any(|kind| **kind == *event.kind);
        // Sixteen digits stand for a switch and for nothing else.
        is_kind
            && self
                .switch
                .is_none_or(|dpid| event.text.contains(&dpid.to_string()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    since: Option<u64>,
    wanted: Wanted,
    follow: bool,
    form: Form,
}

/// The progress of a reader.
struct Reader {
    wanted: Wanted,
    form: Form,
    /// The number of the last event that this reader received or did not want.
    at: u64,
    /// The bytes of all events up to that number, or up to the last event when the reader
    /// connected.
    end: u64,
    /// The number with which the stream ends.
    until: Option<u64>,
}

/// Events as they come, or those that are kept.
///
/// With `Accept: text/event-stream` they are server-sent events without a name, with the number as
/// `id`, and `Last-Event-ID` is honoured; else one JSON document a line. A reader whose number is
/// not kept any more gets one event `reset`: it reads `/v1/topology` anew, and goes on. A reader
/// that is 1 MiB behind gets the event `cut` and the end, and comes again.
#[utoipa::path(get, path = "/v1/events", tag = "network", operation_id = "events",
    params(
        ("since" = Option<u64>, Query,
            description = "The number of the last event that is known; 0 for all that are kept"),
        ("kinds" = Option<String>, Query, example = "link_up,link_down",
            description = "Only events of these kinds"),
        ("switch" = Option<String>, Query, description = "Only events that name this switch"),
        ("follow" = Option<bool>, Query,
            description = "Whether lines go on with what comes; server-sent events always do"),
    ),
    responses(
        (status = 200, content(
            (String = "text/event-stream"),
            (String = "application/x-ndjson"),
        )),
        (status = 400),
        (status = 503, description = "32 streams are read already"),
    ))]
async fn events(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let asked = asked(request.uri().query(), request.headers())?;
    let (writer, response) = api.open_stream(request.extensions(), asked.form)?;
    let feed = api.reads.feed.clone();
    // Before the answer begins: it has every event from then on.
    let mut reader = Reader::new(&feed, asked);
    tokio::spawn(async move {
        if let Err(End::Slow) = reader.run(&feed, &writer).await {
            writer.cut(reader.cut()).await;
        }
    });
    Ok(response)
}

fn asked(query: Option<&str>, headers: &HeaderMap) -> Result<Asked, Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let accepts = text(header::ACCEPT.as_str()).unwrap_or_default();
    let form = match accepts.contains("text/event-stream") {
        true => Form::Sse,
        false => Form::Ndjson,
    };
    let mut query = Query::of(query);
    let since = query.read("since", number);
    let read = Asked {
        since: match text("last-event-id") {
            Some(last) if form == Form::Sse => last.trim().parse().ok().or(since),
            _ => since,
        },
        wanted: Wanted {
            kinds: query.read("kinds", kinds).unwrap_or_default(),
            switch: query.read("switch", str::parse),
        },
        follow: query.read("follow", flag).unwrap_or(false) || form == Form::Sse,
        form,
    };
    query.only(&["since", "kinds", "switch", "follow"])?;
    Ok(read)
}

fn number(text: &str) -> Result<u64, String> {
    let number = text.parse();
    number.map_err(|_| format!("'{text}' is not the number of an event"))
}

fn kinds(text: &str) -> Result<Vec<String>, String> {
    if text.len() > KINDS_MAX {
        return Err(format!("more than {KINDS_MAX} bytes"));
    }
    let kinds = text.split(',').map(str::trim);
    let kinds = kinds.filter(|kind| !kind.is_empty()).map(event_kind);
    kinds.collect()
}

impl Reader {
    fn new(feed: &Feed, asked: Asked) -> Reader {
        let now = feed.after(0, 0, 0);
        Reader {
            wanted: asked.wanted,
            form: asked.form,
            at: match asked.since {
                None if asked.follow => now.last,
                None | Some(0) => now.before_first,
                Some(since) => since,
            },
            end: now.end,
            until: (!asked.follow).then_some(now.last),
        }
    }

    async fn run(&mut self, feed: &Feed, writer: &Writer) -> Result<(), End> {
        let mut last = feed.watch();
        // The head of the answer goes out with the first bytes.
        writer
            .write(self.form.heartbeat().to_owned(), || false)
            .await?;
        // Events that this reader does not want wake it too: they must not put off a heartbeat.
        let mut heartbeat = Instant::now() + HEARTBEAT;
        loop {
            last.borrow_and_update();
            let batch = feed.after(self.at, AT_ONCE, CHUNK_MAX);
            let chunk = self.take(&batch);
            let behind = |end: u64, of: &Reader| {
                let is_cut = of.until.is_none() && end.saturating_sub(of.end) > BEHIND_MAX;
                is_cut.then_some(End::Slow)
            };
            behind(batch.end, self).map_or(Ok(()), Err)?;
            if !chunk.is_empty() {
                writer
                    .write(chunk, || behind(feed.bytes().0, self).is_some())
                    .await?;
                heartbeat = Instant::now() + HEARTBEAT;
            }
            if self.until.is_some_and(|until| self.at >= until) {
                return Ok(());
            }
            if self.at < batch.last {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                _ = last.changed() => sleep(TOGETHER).await,
                () = sleep_until(heartbeat) => {
                    writer.write(self.form.heartbeat().to_owned(), || false).await?;
                    heartbeat = Instant::now() + HEARTBEAT;
                }
                () = writer.closed() => return Err(End::Gone),
            }
        }
    }

    /// Moves the reader to the end of a batch, and returns its share of the batch.
    fn take(&mut self, batch: &Batch) -> String {
        let mut chunk = String::new();
        match &batch.events {
            Ok(events) => {
                for event in events.iter().filter(|event| self.wanted.has(event)) {
                    self.form.write(&mut chunk, Some(event.seq), &event.text);
                }
                if let Some(event) = events.last() {
                    self.at = event.seq;
                    self.end = self.end.max(Arc::as_ref(event).end());
                }
            }
            Err(missed) => self.reset(*missed, batch, &mut chunk),
        }
        chunk
    }

    /// A reader of kept events gets them after the reset. A reader that follows must read the
    /// network again, and gets the events from then on.
    fn reset(&mut self, missed: Missed, batch: &Batch, chunk: &mut String) {
        let next = match self.until {
            Some(_) => batch.before_first,
            None => batch.last,
        };
        let document = json!({
            "seq": next,
            "event": "reset",
            "reason": missed.name(),
            "since": self.at,
            "first": batch.before_first + 1,
        });
        self.form.write(chunk, Some(next), &document.to_string());
        self.at = next;
        if self.until.is_none() {
            self.end = batch.end;
        }
    }

    fn cut(&self) -> String {
        let detail = "the reader is 1 MiB behind, or takes nothing: read on from this number";
        let document = json!({"seq": self.at, "event": "cut", "detail": detail});
        let mut text = String::new();
        self.form
            .write(&mut text, Some(self.at), &document.to_string());
        text
    }
}
