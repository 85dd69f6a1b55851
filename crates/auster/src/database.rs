//! One OVSDB connection for transactions, one after the other.

use net::method::Method;
use net::tls::Security;
use net::transport;
use ovsdb::{Limits, Message, OpResult, Operation, Splitter, parse_results};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub struct Client {
    connection: transport::Connection,
    splitter: Splitter,
}

impl Client {
    pub async fn connect(database: &Method) -> Result<Client, String> {
        let connection = transport::connect(database, &Security::plain()).await;
        Ok(Client {
            connection: connection.map_err(|error| error.to_string())?,
            splitter: Splitter::new(Limits::default()),
        })
    }

    /// Runs all operations in one transaction, and returns a result for each.
    pub async fn transact(&mut self, operations: &[Operation]) -> Result<Vec<OpResult>, String> {
        let mut params = vec![ovsdb::vswitch::DATABASE.into()];
        params.extend(operations.iter().map(Operation::to_json));
        let request = Message::Request {
            id: json!("auster"),
            method: "transact".into(),
            params,
        };
        let problem = |error: &dyn std::fmt::Display| error.to_string();
        let written = self.connection.writer.write_all(&request.encode()).await;
        written.map_err(|e| problem(&e))?;
        loop {
            while let Some(bytes) = self.splitter.poll_message().map_err(|e| problem(&e))? {
                match Message::decode(&bytes).map_err(|e| problem(&e))? {
                    Message::Response { result, .. } => {
                        return parse_results(&result, operations.len()).map_err(|e| problem(&e));
                    }
                    Message::Error { error, .. } => return Err(error.to_string()),
                    Message::Request { .. } | Message::Notification { .. } => {}
                }
            }
            let mut bytes = [0; 4096];
            match self.connection.reader.read(&mut bytes).await {
                Ok(0) => return Err("the database closed the connection".to_owned()),
                Ok(len) => self.splitter.handle_bytes(&bytes[..len]),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}
