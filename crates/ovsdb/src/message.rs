//! One JSON-RPC 1.0 message (section 4): request, notification, response or error.

use serde_json::{Map, Value, json};

/// A message. `id` is any JSON value but null; the sender of a request chooses it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A call that its receiver must answer (section 4).
    Request {
        /// The caller's choice; the answer repeats it.
        id: Value,
        /// Name of the method, for example `transact`.
        method: String,
        /// Arguments of the method, in order.
        params: Vec<Value>,
    },
    /// A call without an answer: a request with a null `id`.
    Notification {
        /// Name of the method, for example `update`.
        method: String,
        /// Arguments of the method, in order.
        params: Vec<Value>,
    },
    /// An answer that carries a result.
    Response {
        /// `id` of the request.
        id: Value,
        /// Value that the method returns. It may be null.
        result: Value,
    },
    /// An answer that carries an error.
    Error {
        /// `id` of the request.
        id: Value,
        /// The failure: for OVSDB a string, or an object with `error` and `details` (section 3.1).
        error: Value,
    },
}

/// Reason why bytes are not a message. Close the connection: nothing after them can be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not JSON, with the parser's reason.
    #[error("not JSON: {0}")]
    Json(String),
    /// JSON, but not an object.
    #[error("a message is a JSON object")]
    NotAnObject,
    /// `method` is neither a string nor null.
    #[error("\"method\" must be a string")]
    MethodIsNotAString,
    /// A request or notification whose `params` is missing or not an array.
    #[error("\"params\" must be an array")]
    ParamsAreNotAnArray,
    /// A response without an `id`.
    #[error("a response without \"id\"")]
    NoId,
    /// Neither `method` nor `result` nor `error`.
    #[error("neither \"method\" nor \"result\" nor \"error\"")]
    NoKind,
    /// Both a `result` and an `error`, neither of them null.
    #[error("both \"result\" and \"error\"")]
    ResultAndError,
}

impl Message {
    /// Reads one message, as returned by [`crate::Splitter`].
    pub fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(members)) => Message::from_members(members),
            Ok(_) => Err(MessageError::NotAnObject),
            Err(error) => Err(MessageError::Json(error.to_string())),
        }
    }

    /// Returns the message as JSON text, without a delimiter.
    pub fn encode(&self) -> Vec<u8> {
        self.to_json().to_string().into_bytes()
    }

    fn from_members(mut members: Map<String, Value>) -> Result<Message, MessageError> {
        let mut take = |name: &str| members.shift_remove(name).unwrap_or(Value::Null);
        let (id, method, params) = (take("id"), take("method"), take("params"));
        let result = members.shift_remove("result");
        let error = members.shift_remove("error").unwrap_or(Value::Null);
        match (method, result, error) {
            (Value::String(method), ..) => {
                let Value::Array(params) = params else {
                    return Err(MessageError::ParamsAreNotAnArray);
                };
                Ok(match id {
                    Value::Null => Message::Notification { method, params },
                    id => Message::Request { id, method, params },
                })
            }
            (Value::Null, None, Value::Null) => Err(MessageError::NoKind),
            (Value::Null, ..) if id.is_null() => Err(MessageError::NoId),
            (Value::Null, Some(result), Value::Null) => Ok(Message::Response { id, result }),
            (Value::Null, None | Some(Value::Null), error) => Ok(Message::Error { id, error }),
            (Value::Null, ..) => Err(MessageError::ResultAndError),
            _ => Err(MessageError::MethodIsNotAString),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Message::Request { id, method, params } => {
                json!({"id": id, "method": method, "params": params})
            }
            Message::Notification { method, params } => {
                json!({"id": null, "method": method, "params": params})
            }
            Message::Response { id, result } => json!({"id": id, "result": result, "error": null}),
            Message::Error { id, error } => json!({"id": id, "result": null, "error": error}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_message_survives_its_encoding() {
        for message in [
            Message::Request {
                id: json!([1, "a"]),
                method: "echo".into(),
                params: vec![json!({"x": [1.5, -3, null]})],
            },
            Message::Notification {
                method: "update".into(),
                params: vec![json!(7), json!({})],
            },
            Message::Response {
                id: json!("echo"),
                result: json!([]),
            },
            Message::Response {
                id: json!(1),
                result: Value::Null,
            },
            Message::Error {
                id: json!(2),
                error: json!({"error": "unknown database"}),
            },
        ] {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn what_is_not_a_message_is_refused_by_name() {
        for (text, error) in [
            ("[]", MessageError::NotAnObject),
            ("{}", MessageError::NoKind),
            (r#"{"id":1}"#, MessageError::NoKind),
            (r#"{"id":1,"error":null}"#, MessageError::NoKind),
            (r#"{"result":{}}"#, MessageError::NoId),
            (r#"{"id":null,"error":"x"}"#, MessageError::NoId),
            (
                r#"{"method":1,"params":[]}"#,
                MessageError::MethodIsNotAString,
            ),
            (
                r#"{"id":1,"method":"echo"}"#,
                MessageError::ParamsAreNotAnArray,
            ),
            (
                r#"{"id":1,"method":"echo","params":{}}"#,
                MessageError::ParamsAreNotAnArray,
            ),
            (
                r#"{"id":1,"result":1,"error":"x"}"#,
                MessageError::ResultAndError,
            ),
        ] {
            assert_eq!(Message::decode(text.as_bytes()), Err(error), "{text}");
        }
        assert!(matches!(Message::decode(b"{]"), Err(MessageError::Json(_))));
        assert!(matches!(
            Message::decode(b"{\"a\":\"\xff\"}"),
            Err(MessageError::Json(_))
        ));
    }
}
