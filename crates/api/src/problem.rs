//! The answer to a request that cannot be carried out: RFC 9457, with one entry for each wrong
//! field.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

use config::qos::Refused;
use config::qos::tree::Wrong;

/// The time after which a client that got 503 or 429 may try again.
const RETRY_AFTER_S: &str = "2";

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A problem detail (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    #[serde(rename = "type")]
    #[schema(example = "about:blank")]
    pub kind: &'static str,
    pub title: &'static str,
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// The problem, in plain words.
    pub detail: String,
    /// One for each field that is wrong.
    pub errors: Vec<FieldError>,
}

/// The problem of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// Into the body (RFC 6901); empty for the whole of it, or for what is not in it.
    #[schema(example = "/queues/0/min")]
    pub pointer: String,
    pub detail: String,
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
        }
    }

    /// The problem of wrong fields in a body, or in the data with which it is combined.
    pub fn of_fields(wrong: &[Wrong]) -> Problem {
        let error = |wrong: &Wrong| FieldError {
            pointer: wrong.place.pointer.clone(),
            detail: wrong.text.clone(),
        };
        let count = wrong.len();
        let detail = match count {
            1 => "one field is wrong; nothing was changed".to_owned(),
            _ => format!("{count} fields are wrong; nothing was changed"),
        };
        Problem {
            errors: wrong.iter().map(error).collect(),
            ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        let conflict = |detail: String| Problem::new(StatusCode::CONFLICT, detail);
        match refused {
            Refused::OfTheFile(item) => conflict(format!(
                "{item} is in the configuration; change it there, and send SIGHUP"
            )),
            Refused::Exists(item) => conflict(format!("{item} is there already; PUT replaces it")),
            Refused::Unknown(item) => {
                Problem::new(StatusCode::NOT_FOUND, format!("there is no {item}"))
            }
            Refused::BesideVlans(item) => conflict(format!(
                "{item} chooses packets without their VLAN, and the configuration has VLANs; take \
                 [[vlan]], [[port]] and vlans out of it first"
            )),
            Refused::NotForwarding(item) => conflict(format!(
                "{item} chooses packets of auster's forwarding, which is off; start auster run \
                 with --forwarding fabric or paths for it"
            )),
            Refused::Wrong(wrong) => Problem::of_fields(&wrong),
            Refused::Stale(item) => {
                let detail =
                    format!("{item} is not as If-Match or If-None-Match says; GET it again");
                Problem::new(StatusCode::PRECONDITION_FAILED, detail)
            }
            Refused::Away(why) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, why),
            Refused::Full(why) => Problem::new(StatusCode::INSUFFICIENT_STORAGE, why),
            Refused::TooLarge(why) => Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why),
            Refused::Halfway { done, of, why } => {
                let mut problem = Problem::from(*why);
                let rest = "nothing of the rest was changed";
                let detail = problem.detail.replace("nothing was changed", rest);
                problem.detail = format!("{done} of {of} documents were put before: {detail}");
                problem
            }
            Refused::Busy => Problem::busy(),
        }
    }
}

/// The answers to a change that is not kept or not in use, in the document of the API.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a part of the document alone")]
pub enum NotKept {
    #[response(
        status = 202,
        description = "It is kept, and will be in use once the controller has time"
    )]
    Later,
    #[response(
        status = 412,
        description = "It is not as If-Match or If-None-Match says"
    )]
    Stale,
    #[response(
        status = 413,
        description = "It is too large to be kept, or too much at once"
    )]
    TooLarge,
    #[response(
        status = 503,
        description = "It is not kept: etcd is away, or the controller is busy. Or it is unknown \
                       whether it is kept, as `detail` says then"
    )]
    Away,
    #[response(status = 507, description = "There is no room to keep it")]
    Full,
}

impl Problem {
    pub fn busy() -> Problem {
        let detail = "the controller is too busy to answer; try again";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = (status, Json(self)).into_response();
        let is_later = [
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::TOO_MANY_REQUESTS,
        ]
        .contains(&status);
        if is_later {
            let again = HeaderValue::from_static(RETRY_AFTER_S);
            response.headers_mut().insert(header::RETRY_AFTER, again);
        }
        let kind = HeaderValue::from_static(PROBLEM_JSON);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
