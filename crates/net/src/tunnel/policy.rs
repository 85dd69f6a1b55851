//! Policy maps on their way between two relays: who waits for the outcome, and what a hub keeps of
//! relays that come and go.

use std::sync::Arc;

use control::relay::PolicyStatus;
use sched::PolicyMap;
use sched::policy::MapDigest;
use tokio::sync::oneshot;

use super::End;

impl End {
    /// Gives both ends another policy map, or neither.
    ///
    /// # Errors
    /// All that is wrong with the map, here or at the other end, or what kept it from getting there.
    pub async fn push_policy(self: &Arc<Self>, text: &str) -> Result<MapDigest, String> {
        let (tell, told) = oneshot::channel();
        self.with_state(|state| {
            state.session.push_policy(text)?;
            // One map at a time: nobody else waits.
            state.policy_outcome = Some(tell);
            Ok::<(), String>(())
        })?;
        let gone = "the connection to the other relay ended; the map is not in use here".to_owned();
        told.await.unwrap_or(Err(gone))
    }

    /// The map in use, where messages are scheduled.
    pub fn policy_map(self: &Arc<Self>) -> Option<PolicyMap> {
        self.with(|session| session.policy_map().cloned())
    }

    pub fn policy_status(self: &Arc<Self>) -> Option<PolicyStatus> {
        self.with(|session| session.policy())
    }
}
