//! TLS of a server whose clients need no certificate. A certificate that a client shows must be
//! valid, and the caller judges whose it is. No resumption: trust in a client ends with its
//! connection.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};

use super::files::{self, CredentialsError, Expiry, ExpiryKind, FileFault};
use super::provider;

/// The files of such a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFiles {
    pub private_key: PathBuf,
    /// Our certificate, then its intermediates.
    pub certificate: PathBuf,
    /// The CAs that clients' certificates must chain to; if `None`, clients are asked for none.
    pub ca: Option<PathBuf>,
    /// A list of revoked certificates by each CA in `ca`.
    pub crl: Option<PathBuf>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    /// `None` where clients are asked for no certificate.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    expiries: Vec<Expiry>,
    /// The number of reloads.
    generation: u64,
}

/// The credentials for handshakes that begin now.
pub struct ServerSecurity(RwLock<Loaded>);

impl fmt::Debug for ServerSecurity {
    /// Leaves out the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSecurity")
    }
}

impl ServerSecurity {
    /// Reads the files. `alpn` names the protocols that are spoken over it.
    pub fn load(files: &ServerFiles, alpn: &[&[u8]]) -> Result<ServerSecurity, CredentialsError> {
        Ok(ServerSecurity(RwLock::new(files.load(alpn)?)))
    }

    /// Reads the files for every later handshake. If anything is wrong with them, returns every
    /// problem, and nothing changes.
    pub fn reload(&self, files: &ServerFiles, alpn: &[&[u8]]) -> Result<(), CredentialsError> {
        let mut loaded = files.load(alpn)?;
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        loaded.generation = held.generation + 1;
        *held = loaded;
        Ok(())
    }

    /// The configuration for a handshake, and its generation for [`ServerSecurity::judge`].
    pub fn config(&self) -> (Arc<ServerConfig>, u64) {
        let loaded = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (loaded.config.clone(), loaded.generation)
    }

    /// Judges whether a client that has shown `chain` in a handshake of `generation` would pass one
    /// now: the connection may have outlived the trust in its client.
    pub fn judge(&self, chain: &[CertificateDer<'_>], generation: u64) -> Result<(), String> {
        let clients = {
            let loaded = self.0.read().unwrap_or_else(PoisonError::into_inner);
            match loaded.generation == generation {
                true => return Ok(()),
                false => loaded.clients.clone(),
            }
        };
        let (Some(clients), Some((first, more))) = (clients, chain.split_first()) else {
            return Err("no certificate is asked for".to_owned());
        };
        let verified = clients.verify_client_cert(first, more, UnixTime::now());
        verified.map(drop).map_err(|error| error.to_string())
    }

    pub fn expiries(&self) -> Vec<Expiry> {
        let loaded = self.0.read().unwrap_or_else(PoisonError::into_inner);
        loaded.expiries.clone()
    }
}

impl ServerFiles {
    fn load(&self, alpn: &[&[u8]]) -> Result<Loaded, CredentialsError> {
        let mut faults = Vec::new();
        let own = files::load_own(&self.private_key, &self.certificate, &mut faults);
        let trusted = self.ca.as_ref().map(|ca| {
            let trusted = files::load_roots(ca);
            trusted.map_err(|fault| faults.push(fault)).ok()
        });
        let crls = match (&self.crl, &self.ca, &trusted) {
            (Some(crl), Some(ca), Some(Some((_, authorities)))) => {
                let crls = files::load_crls(crl, ca, authorities);
                crls.map_err(|fault| faults.push(fault)).ok()
            }
            _ => Some(Vec::new()),
        };
        let (Some(own), Some(crls), true) = (own, crls, faults.is_empty()) else {
            return Err(CredentialsError { faults });
        };
        let mut expiries = files::expiry(&self.certificate, ExpiryKind::Certificate, &own.cert);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the suites of TLS 1.2 and 1.3");
        let mut clients = None;
        let builder = match trusted.flatten() {
            None => builder.with_no_client_auth(),
            Some((roots, authorities)) => {
                let ca = self.ca.clone().unwrap_or_default();
                expiries.extend(files::expiry(&ca, ExpiryKind::Ca, &authorities));
                if let Some(crl) = &self.crl {
                    expiries.extend(files::crl_expiry(crl, &crls));
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
                        .with_crls(crls)
                        .allow_unauthenticated()
                        .build();
                let verifier = verifier.map_err(|error| CredentialsError {
                    faults: vec![FileFault {
                        path: ca,
                        problem: error.to_string(),
                        is_unreadable: false,
                    }],
                })?;
                clients = Some(verifier.clone());
                builder.with_client_cert_verifier(verifier)
            }
        };
        let own = Arc::new(rustls::sign::SingleCertAndKey::from(own));
        let mut config = builder.with_cert_resolver(own);
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Loaded {
            config: Arc::new(config),
            clients,
            expiries,
            generation: 0,
        })
    }
}
