//! The paths of three applications of Ryu, for programs that were written for them: `ofctl_rest`
//! (`/stats/…`), `rest_qos` (`/qos/…`) and `rest_topology` (`/v1.0/topology/…`). Shapes of answers
//! are those of Ryu 4.34 for OpenFlow 1.3. A request that auster cannot carry out gets 501 and the
//! reason.
//!
//! | Ryu | here |
//! | --- | --- |
//! | `GET /stats/…` | asked of the switch |
//! | `POST /stats/flowentry/…` | static entries of the owner `ryu` |
//! | `POST /stats/meterentry/…`, `groupentry` | stated meters and groups of the owner `ryu` |
//! | `POST /stats/portdesc`, `role`, `experimenter` | 501, too |
//! | `/qos/queue/{switch}` | queues of ports, as `/v1/queues` |
//! | `/qos/rules/{switch}` | a service and a policy for each rule |
//! | `GET /v1.0/topology/…` | as there |
//! | `/qos/meter/{switch}` | kept, and used by rules that name the number |

mod flow_entries;
mod matching;
mod part_entries;
mod qos;
mod show;
mod stats;
mod topology;

use axum::Router;

use super::Api;

pub fn router() -> Router<Api> {
    stats::router()
        .merge(flow_entries::router())
        .merge(part_entries::router())
        .merge(qos::router())
        .merge(topology::router())
}
