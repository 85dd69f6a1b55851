//! Whether the process lives, and whether it can do its work.

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use control::cluster::{Cluster, Standing};
use control::clustered::Clustered;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;

/// The time that the controller's thread has to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Health {
    #[schema(example = "ok")]
    pub status: &'static str,
    /// The time that the controller's thread took to answer.
    pub answered_ms: f64,
    /// A member of a cluster serves the switches, or stands by for another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "stands by for c")]
    pub state: Option<String>,
}

impl Api {
    async fn health(&self) -> Result<(Health, Option<Standing>), Problem> {
        let begun = Instant::now();
        let standing = |application: &mut Clustered| application.cluster().map(Cluster::standing);
        let answered = timeout(ANSWER_MAX, self.driver.ask(standing)).await;
        let silent = || {
            let detail = "the controller's thread does not answer within a second";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        };
        let standing = answered.ok().flatten().ok_or_else(silent)?;
        let health = Health {
            status: "ok",
            answered_ms: begun.elapsed().as_secs_f64() * 1e3,
            state: standing.as_ref().map(ToString::to_string),
        };
        Ok((health, standing))
    }
}

/// Whether the process and the controller's thread answer, whatever etcd and other members do.
#[utoipa::path(get, path = "/healthz", tag = "process", operation_id = "healthz",
    responses(
        (status = 200, body = Health),
        (status = 503, description = "The controller's thread does not answer within a second"),
    ))]
async fn healthz(State(api): State<Api>) -> Result<Json<Health>, Problem> {
    let (health, _) = api.health().await?;
    Ok(Json(health))
}

/// Whether it can do its work, too: its listeners are open, and as a member of a cluster it serves
/// the switches, or could take over. That a member has lost etcd meanwhile does not count.
#[utoipa::path(get, path = "/readyz", tag = "process", operation_id = "readyz",
    responses(
        (status = 200, body = Health),
        (status = 503),
    ))]
async fn readyz(State(api): State<Api>) -> Result<Json<Health>, Problem> {
    let (health, standing) = api.health().await?;
    if !api.reads.is_ready() {
        let detail = "switches cannot connect yet: the listeners are not open";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    if let Some(standing) = standing.filter(|standing| !standing.is_able()) {
        let detail = format!("not ready: {standing}");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    let status = "ready";
    Ok(Json(Health { status, ..health }))
}
