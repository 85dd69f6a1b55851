//! The paths of two applications of Ryu, for programs that were written for them: `ofctl_rest`
//! (`/stats/…`) and `rest_qos` (`/qos/…`). Shapes of answers are those of Ryu 4.34 for OpenFlow 1.3;
//! what cannot be done here is answered with 501 and says why.
//!
//! | Ryu | here |
//! | --- | --- |
//! | `GET /stats/…` | asked of the switch |
//! | `POST /stats/flowentry/…`, `meterentry`, `groupentry`, `portdesc`, `role`, `experimenter` | 501: auster looks after the tables |
//! | `/qos/queue/{switch}` | queues of ports, as `/v1/queues` |
//! | `/qos/rules/{switch}` | a service and a policy for each rule |
//! | `/qos/meter/{switch}` | kept, and used by rules that name the number |

mod matching;
mod qos;
mod show;
mod stats;

use axum::Router;

use super::Api;

pub fn router() -> Router<Api> {
    stats::router().merge(qos::router())
}
