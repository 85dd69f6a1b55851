//! The certificates of `auster run` whose files change while it runs: those for switches, for the
//! API, and for the other members of its cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use net::tls::{CredentialFiles, Security};

use super::events::Printer;
use api::access::Access;
use cli::certificates::watched::Watched;
use cli::certificates::{self, paths};
use config::api::Stated;
use config::settings::Settings;

/// The part of `auster run` whose files have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    Switches,
    Api,
    Cluster,
}

/// The files that the configuration names.
#[derive(Default)]
struct Named {
    switches: Option<CredentialFiles>,
    api: Option<Stated>,
    cluster: Option<CredentialFiles>,
}

impl Named {
    fn of(settings: &Settings) -> Named {
        let switches = settings.credential_files();
        let cluster = settings.cluster.as_ref();
        Named {
            cluster: cluster.and_then(|stated| stated.files(switches.clone())),
            api: settings.api.clone(),
            switches,
        }
    }

    fn paths(&self) -> [Vec<PathBuf>; 3] {
        let of_api = self.api.as_ref().and_then(|api| api.tls.as_ref());
        let of_api = of_api.map(|tls| {
            let own = [&tls.private_key, &tls.certificate].into_iter();
            own.chain(&tls.ca).chain(&tls.crl).cloned().collect()
        });
        let of = |files: &Option<CredentialFiles>| files.as_ref().map(paths).unwrap_or_default();
        [
            of(&self.switches),
            of_api.unwrap_or_default(),
            of(&self.cluster),
        ]
    }
}

/// Watches the certificate files, and loads those that change.
pub struct Kept {
    named: Named,
    watched: [Watched; 3],
    switches: Security,
    api: Option<Arc<Access>>,
    cluster: Option<Security>,
}

impl Kept {
    /// Watches the files of `settings`, which were read after `begun`.
    pub fn start(
        begun: SystemTime,
        settings: &Settings,
        switches: Security,
        api: Option<Arc<Access>>,
        cluster: Option<Security>,
    ) -> Kept {
        let named = Named::of(settings);
        Kept {
            watched: named.paths().map(|paths| Watched::start(paths, begun)),
            named,
            switches,
            api,
            cluster,
        }
    }

    /// Waits until files have changed. The caller may drop the wait and start again.
    pub async fn changed(&self) -> Changed {
        let [switches, api, cluster] = &self.watched;
        tokio::select! {
            () = switches.changed() => Changed::Switches,
            () = api.changed() => Changed::Api,
            () = cluster.changed() => Changed::Cluster,
        }
    }

    /// Reads the files again. Unusable files are refused with one line, and the certificates in use
    /// stay.
    pub async fn reload(&self, changed: Changed, printer: &mut Printer) {
        match changed {
            Changed::Switches => reload(&self.named.switches, Some(&self.switches), printer),
            Changed::Cluster => reload(&self.named.cluster, self.cluster.as_ref(), printer),
            Changed::Api => {
                let stated = self.named.api.clone();
                let (Some(access), Some(stated)) = (self.api.clone(), stated) else {
                    return;
                };
                let tls = stated.tls.as_ref();
                let name = tls.map(|tls| tls.certificate.display().to_string());
                let read = tokio::task::spawn_blocking(move || access.reload_tls(&stated)).await;
                match (read, name) {
                    (Ok(Ok(true)), Some(name)) => printer.certificate_used(&name),
                    (Ok(Err(failure)), Some(name)) => {
                        printer.certificate_refused(&name, failure.message());
                    }
                    _ => {}
                }
            }
        }
    }

    /// Handles a reload of the configuration. Reads the cluster's files again, and uses the file
    /// names in `settings` from now on.
    pub fn handle_reload(&mut self, settings: &Settings, printer: &mut Printer) {
        self.named = Named::of(settings);
        reload(&self.named.cluster, self.cluster.as_ref(), printer);
        for (watched, paths) in self.watched.iter().zip(self.named.paths()) {
            watched.follow(paths);
        }
    }
}

fn reload(files: &Option<CredentialFiles>, security: Option<&Security>, printer: &mut Printer) {
    let security = security.filter(|security| security.has_credentials());
    let (Some(files), Some(security)) = (files, security) else {
        return;
    };
    let name = files.certificate.display().to_string();
    match certificates::reload(files, security) {
        Ok(()) => printer.certificate_used(&name),
        Err(failure) => printer.certificate_refused(&name, failure.message()),
    }
}
