//! `auster state`: everything requested of a running controller through its API, as one document.
//! The document is the same for one controller and for a cluster, so it moves requests between
//! them.

use std::io::Read;
use std::path::PathBuf;

use cli::failure::Failure;
use cli::output::{note, say};
use cli::runtime::block_on;
use hyper::Method;
use serde_json::{Value, json};

use crate::qos::ApiArgs;
use crate::qos::client::Client;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Write everything set through the API to standard output: queues, static entries, places, …
    #[command(after_help = "\
What the configuration says is not among it.
Example:
  auster state export > state.json")]
    Export(ExportArgs),
    /// Load an export, in place of objects with the same names
    #[command(after_help = "\
All of it is checked before anything is changed. What is there under other names stays.
Example:
  auster state import state.json
  auster state export --api a:8080 | auster state import - --api b:8080")]
    Import(ImportArgs),
}

#[derive(clap::Args)]
pub struct ExportArgs {
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(clap::Args)]
pub struct ImportArgs {
    /// Output of auster state export; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    api: ApiArgs,
}

/// The path of the document in the API.
const PATH: &str = "/v1/intent";
/// The maximum size of a file to read, in bytes.
const BYTES_MAX: u64 = 16 << 20;

pub fn run(command: Command) -> Result<(), Failure> {
    block_on(async {
        match command {
            Command::Export(args) => export(&args.api.client()?).await,
            Command::Import(args) => import(&args).await,
        }
    })
}

async fn export(client: &Client) -> Result<(), Failure> {
    let (document, unread) = exported(client.get(PATH).await?);
    for name in unread {
        note!("auster: warning: {name} cannot be read, and is left out");
    }
    say!("{document:#}");
    Ok(())
}

/// The document with the entries that an import reads, and the names of unreadable entries.
fn exported(document: Value) -> (Value, Vec<String>) {
    let entries = document["documents"].as_array().into_iter().flatten();
    let (read, unread): (Vec<&Value>, Vec<&Value>) =
        entries.partition(|entry| !entry["document"].is_null());
    let name = |entry: &&Value| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("kind"), text("name"))
    };
    let unread = unread.iter().map(name).collect();
    let kept = json!({"auster_intent": document["auster_intent"], "documents": read});
    (kept, unread)
}

async fn import(args: &ImportArgs) -> Result<(), Failure> {
    let name = args.file.display();
    let mut text = Vec::new();
    let read = match args.file.as_os_str() == "-" {
        true => std::io::stdin().take(BYTES_MAX + 1).read_to_end(&mut text),
        false => std::fs::File::open(&args.file)
            .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut text)),
    };
    read.map_err(|error| Failure::file(&args.file, error))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Failure::usage(format!("{name}: over {BYTES_MAX} bytes")));
    }
    let document: Value = serde_json::from_slice(&text)
        .map_err(|error| Failure::usage(format!("{name}: no document of an export: {error}")))?;
    let client = args.api.client()?;
    let done = client.ask(Method::PUT, PATH, Some(&document)).await?;
    say!("{} created, {} replaced", done["created"], done["replaced"]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_can_read_is_named_and_not_exported() {
        let voice = json!({"kind": "services", "name": "voice", "document": {"name": "voice"}});
        let junk = json!({"kind": "services", "name": "x", "document": null});
        let whole = json!({"auster_intent": 1, "documents": [voice, junk]});
        let (document, unread) = exported(whole);
        assert_eq!(document, json!({"auster_intent": 1, "documents": [voice]}));
        assert_eq!(unread, ["services/x"]);
    }
}
