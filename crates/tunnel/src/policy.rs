//! The exchange of policy maps between two relays: who waits for the outcome, and what a hub keeps
//! for relays that come and go.

use std::sync::Arc;

use relay::{PolicyStatus, Session};
use sched::PolicyMap;
use sched::policy::MapDigest;
use tokio::sync::{oneshot, watch};

use super::End;

impl End {
    /// Gives both ends another policy map, or neither.
    ///
    /// # Errors
    /// Every problem of the map, here or at the other end, or the reason why it did not reach that
    /// end.
    pub async fn push_policy(self: &Arc<Self>, text: &str) -> Result<MapDigest, String> {
        self.change_policy(|session| session.push_policy(text))
            .await
    }

    /// Pushes a map like [`End::push_policy`]. While there is no connection, this end uses the map
    /// at once.
    ///
    /// # Errors
    /// The errors of [`End::push_policy`].
    pub async fn load_policy(self: &Arc<Self>, text: &str) -> Result<MapDigest, String> {
        self.change_policy(|session| session.load_policy(text))
            .await
    }

    /// Returns the map in use and every later one, where messages are scheduled.
    pub fn committed(&self) -> Option<watch::Receiver<Arc<PolicyMap>>> {
        self.committed.as_ref().map(watch::Sender::subscribe)
    }

    /// Announces a newer map, if there is one.
    pub(super) fn note_policy(&self, session: &Session) {
        let (Some(committed), Some(map)) = (&self.committed, session.policy_map()) else {
            return;
        };
        committed.send_if_modified(|told| {
            let is_newer = map.generation > told.generation;
            if is_newer {
                *told = Arc::new(map.clone());
            }
            is_newer
        });
    }

    async fn change_policy(
        self: &Arc<Self>,
        begin: impl FnOnce(&mut Session) -> Result<MapDigest, String>,
    ) -> Result<MapDigest, String> {
        let (tell, told) = oneshot::channel();
        self.with_state(|state| {
            begin(&mut state.session)?;
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
