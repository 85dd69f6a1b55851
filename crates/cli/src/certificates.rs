//! The certificates of a long-running command: reread when the files change and on SIGHUP, and
//! watched for their expiry.

pub mod watched;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use net::tls::{CredentialFiles, Credentials, Expiry, ExpiryKind, Security};
use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::output::say;
use watched::Watched;

const DAY: Duration = Duration::from_secs(86_400);
/// The time before a certificate's expiry at which the warnings begin.
const WARNED_BEFORE: Duration = Duration::from_secs(30 * 86_400);

/// `-p`, `-c`, `-C` and `--crl` together, if the first three are given.
pub fn files(
    private_key: Option<&Path>,
    certificate: Option<&Path>,
    ca: Option<&Path>,
    crl: Option<&Path>,
) -> Option<CredentialFiles> {
    Some(CredentialFiles {
        private_key: private_key?.to_owned(),
        certificate: certificate?.to_owned(),
        ca: ca?.to_owned(),
        crl: crl.map(PathBuf::from),
    })
}

/// The paths of all the files.
pub fn paths(files: &CredentialFiles) -> Vec<PathBuf> {
    let own = [&files.private_key, &files.certificate, &files.ca];
    own.into_iter().chain(&files.crl).cloned().collect()
}

/// Reads the files again for every later handshake. If anything is wrong with them, returns every
/// problem, and `security` keeps its credentials.
pub fn reload(files: &CredentialFiles, security: &Security) -> Result<(), Failure> {
    replace(security, Arc::new(files.load()?));
    Ok(())
}

/// Uses these credentials for every later handshake.
pub fn replace(security: &Security, credentials: Arc<Credentials>) {
    security.replace(credentials);
    warn(&expiries(security));
}

/// Reloads a relay's credentials when their files change. SIGHUP rereads all of them, reports how
/// many have changed, and warns if there are no certificates. The tasks also warn once a day about
/// certificates that expire soon. They end with the returned set. The files were read after
/// `begun`.
pub fn keep(
    begun: SystemTime,
    held: Vec<(CredentialFiles, Security)>,
) -> Result<JoinSet<()>, Failure> {
    let mut hung_up = signal(SignalKind::hangup())
        .map_err(|error| Failure::machine(format!("cannot handle signals: {error}")))?;
    let mut tasks = JoinSet::new();
    let watched: Arc<[Watched]> = held
        .iter()
        .map(|(files, _)| Watched::start(paths(files), begun))
        .collect();
    let (sender, mut changed) = mpsc::channel(1);
    for (at, (_, security)) in held.iter().enumerate() {
        tasks.spawn(watch(security.clone()));
        let (watched, sender) = (watched.clone(), sender.clone());
        tasks.spawn(async move {
            loop {
                watched[at].changed().await;
                if sender.send(at).await.is_err() {
                    return;
                }
            }
        });
    }
    let mut digests: Vec<_> = held.iter().map(|(files, _)| digest(files)).collect();
    tasks.spawn(async move {
        loop {
            let (which, is_asked) = tokio::select! {
                Some(()) = hung_up.recv() => (0..held.len(), true),
                Some(at) = changed.recv() => (at..at + 1, false),
                else => return,
            };
            if held.is_empty() {
                tracing::warn!("SIGHUP: there are no certificates to read again");
            }
            let (mut changed, mut refused) = (0, 0);
            for at in which {
                let (files, security) = &held[at];
                if is_asked {
                    watched[at].follow(paths(files));
                }
                let now = digest(files);
                match reload(files, security) {
                    Ok(()) => {
                        say!("certificate {} in use", files.certificate.display());
                        changed += usize::from(std::mem::replace(&mut digests[at], now) != now);
                    }
                    Err(failure) => {
                        refused += 1;
                        let problems = failure.message();
                        tracing::error!("certificates refused, those in use stay: {problems}");
                    }
                }
            }
            if is_asked {
                let unchanged = held.len() - changed - refused;
                say!(
                    "reload: certificates changed {changed}, unchanged {unchanged}, refused \
                     {refused}; options need a restart"
                );
            }
        }
    });
    Ok(tasks)
}

/// A digest of the files' contents.
fn digest(files: &CredentialFiles) -> [u8; 32] {
    let all = [&files.private_key, &files.certificate, &files.ca];
    let mut digest = Sha256::new();
    for file in all.into_iter().chain(&files.crl) {
        let bytes = std::fs::read(file).unwrap_or_default();
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    }
    digest.finalize().into()
}

/// Warns at once, and then daily, about anything that expires soon.
pub async fn watch(security: Security) {
    watch_all(move || expiries(&security)).await;
}

/// Does the same for the expiries at the time of each warning.
pub async fn watch_all(expiries: impl Fn() -> Vec<Expiry>) {
    loop {
        warn(&expiries());
        tokio::time::sleep(DAY).await;
    }
}

/// The expiries of the files in use.
pub fn expiries(security: &Security) -> Vec<Expiry> {
    let held = security.credentials();
    held.map(|held| held.expiries().to_vec())
        .unwrap_or_default()
}

fn warn(expiries: &[Expiry]) {
    for warning in warnings(expiries, SystemTime::now()) {
        tracing::warn!("{warning}");
    }
}

fn warnings(expiries: &[Expiry], now: SystemTime) -> Vec<String> {
    let soon = expiries
        .iter()
        .filter(|expiry| expiry.at < now + WARNED_BEFORE);
    let warning = |expiry: &Expiry| {
        let file = expiry.path.display();
        let what = match expiry.kind {
            ExpiryKind::Certificate => "the certificate",
            ExpiryKind::Ca => "a CA certificate",
            ExpiryKind::RevocationList => "a revocation list",
        };
        let when = match expiry.at.duration_since(now) {
            Ok(left) => format!("expires in {} days", left.as_secs() / DAY.as_secs()),
            Err(_) => "has expired".to_owned(),
        };
        format!("{file}: {what} {when}; put a new one there")
    };
    soon.map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expires_within_thirty_days_is_warned_of() {
        let now = SystemTime::UNIX_EPOCH + DAY * 20_000;
        let expiry = |name: &str, kind, at| Expiry {
            path: name.into(),
            kind,
            at,
        };
        let found = warnings(
            &[
                expiry("cert.pem", ExpiryKind::Certificate, now + DAY * 29),
                expiry("cacert.pem", ExpiryKind::Ca, now + DAY * 31),
                expiry("crl.pem", ExpiryKind::RevocationList, now - DAY),
            ],
            now,
        );
        let expected = [
            "cert.pem: the certificate expires in 29 days; put a new one there",
            "crl.pem: a revocation list has expired; put a new one there",
        ];
        assert_eq!(found, expected);
    }
}
