//! This member's view of its cluster.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use control::clustered::Clustered;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_cluster))
}

/// A cluster of controllers, as this member sees it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ClusterDocument {
    /// This member.
    pub name: String,
    /// Whether it serves the switches.
    pub is_serving: bool,
    /// The member that serves, as far as this one knows.
    pub holder: Option<String>,
    /// The other members.
    pub peers: Vec<PeerDocument>,
    /// Times that this member has taken the switches over from one that was not heard.
    pub takeovers: u64,
    /// Times that it has yielded them.
    pub yields: u64,
    /// Times that it has suspected another member.
    pub suspicions: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PeerDocument {
    pub name: String,
    /// Whether this member hears it now.
    pub is_heard: bool,
}

/// The members, and which of them serves.
#[utoipa::path(get, path = "/v1/cluster", tag = "network", operation_id = "get_cluster",
    responses(
        (status = 200, body = ClusterDocument),
        (status = 404, description = "This controller is in no cluster"),
    ))]
async fn get_cluster(State(api): State<Api>) -> Result<Json<ClusterDocument>, Problem> {
    let found = api.ask_soon(|controller| document(controller)).await?;
    let alone = || Problem::new(StatusCode::NOT_FOUND, "this controller is in no cluster");
    found.map(Json).ok_or_else(alone)
}

fn document(controller: &Clustered) -> Option<ClusterDocument> {
    let cluster = controller.cluster()?;
    let shards = cluster.shards();
    let holder = shards.iter().find_map(|shard| shard.holder.as_ref());
    let peers = cluster
        .peers()
        .into_iter()
        .map(|(id, is_heard)| PeerDocument {
            name: id.to_string(),
            is_heard,
        });
    let counts = cluster.counts();
    Some(ClusterDocument {
        name: cluster.config().id.to_string(),
        is_serving: shards.iter().any(|shard| shard.is_held),
        holder: holder.map(ToString::to_string),
        peers: peers.collect(),
        takeovers: counts.takeovers,
        yields: counts.yields,
        suspicions: counts.suspicions,
    })
}
