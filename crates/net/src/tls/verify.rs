//! The two verifiers. They check chain, validity, key usage and revocation with webpki, then the
//! role and the names. A refusal is logged with the certificate, which the caller does not get.

use std::fmt;
use std::sync::{Arc, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

use super::identity::{self, CertificateIdentity};
use super::{Current, Expected};

/// A certificate that chains to our CA but is not the one that we expect, or whose fault the
/// library does not describe.
#[derive(thiserror::Error)]
#[error("{0}")]
struct WrongIdentity(String);

impl fmt::Debug for WrongIdentity {
    /// Writes the text alone: where QUIC's errors have room for a reason, this is all they take.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn refuse(why: String) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(
        WrongIdentity(why),
    ))))
}

impl Expected {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let identity = CertificateIdentity::of(certificate)
            .map_err(|why| refuse(format!("its certificate is refused: {why}")))?;
        if !identity.may_be(self.role) {
            return Err(refuse(format!(
                "its certificate is for a {}, a {} is expected",
                identity.role.map_or(String::new(), |r| r.to_string()),
                self.role.map_or(String::new(), |r| r.to_string()),
            )));
        }
        if self.names.is_empty() {
            return Ok(());
        }
        let parsed = X509Certificate::from_der(certificate);
        let names = parsed.map_or_else(|_| Vec::new(), |(_, parsed)| identity::names(&parsed));
        let is_expected = |name: &String| self.names.iter().any(|e| e.eq_ignore_ascii_case(name));
        match names.iter().any(is_expected) {
            true => Ok(()),
            false => Err(refuse(format!(
                "its certificate names {}; {} is expected",
                quoted(&names, " and "),
                quoted(&self.names, " or "),
            ))),
        }
    }
}

/// `'a' or 'b'`.
fn quoted(names: &[String], between: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    match quoted.is_empty() {
        true => "nobody".to_owned(),
        false => quoted.join(between),
    }
}

/// Returns the error, with a text of ours if the library has none for it.
fn in_words(error: Error, certificate: &CertificateDer<'_>) -> Error {
    let is_old = || {
        let parsed = X509Certificate::from_der(certificate);
        parsed.is_ok_and(|(_, parsed)| parsed.version() != X509Version::V3)
    };
    match &error {
        Error::InvalidCertificate(CertificateError::Other(_)) if is_old() => refuse(format!(
            "its certificate is refused: {}",
            super::files::OLD_VERSION
        )),
        _ => error,
    }
}

/// The line of the log. The caller logs a line with the peer's address.
fn refusal(certificate: &CertificateDer<'_>, error: &Error) -> String {
    let why = match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => other.0.to_string(),
        error => error.to_string(),
    };
    format!(
        "refused certificate {}: {why}",
        identity::describe(certificate)
    )
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    rustls::crypto::ring::default_provider().signature_verification_algorithms
}

/// Judges the server we dialled, by the credentials in use.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    current: Arc<Current>,
    expected: Expected,
    name: Option<ServerName<'static>>,
}

impl ServerVerifier {
    pub(super) fn new(
        current: Arc<Current>,
        expected: Expected,
        name: Option<ServerName<'static>>,
    ) -> ServerVerifier {
        ServerVerifier {
            current,
            expected,
            name,
        }
    }

    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        dialled: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let servers = self.current.get().servers.clone();
        let name = self.name.as_ref().unwrap_or(dialled);
        let chain = servers.verify_server_cert(end_entity, intermediates, name, ocsp_response, now);
        let is_of_the_name = |error: &Error| {
            use CertificateError::{NotValidForName, NotValidForNameContext};
            let Error::InvalidCertificate(error) = error else {
                return false;
            };
            matches!(error, NotValidForName | NotValidForNameContext { .. })
        };
        let verified = match chain {
            // The comparison is the last check, after the chain, its validity and revocation.
            Err(error) if self.name.is_none() && is_of_the_name(&error) => {
                ServerCertVerified::assertion()
            }
            verified => verified.map_err(|error| in_words(error, end_entity))?,
        };
        self.expected.check(end_entity)?;
        Ok(verified)
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        dialled: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verify(end_entity, intermediates, dialled, ocsp_response, now);
        let line = match &verified {
            Ok(_) => String::new(),
            Err(error) => refusal(end_entity, error),
        };
        let mut told = self
            .current
            .told
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *told != line && !line.is_empty() {
            tracing::warn!("{line}");
        }
        *told = line;
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}

/// Judges the client that dialled us, by the credentials in use. A client without a certificate is
/// refused.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    current: Arc<Current>,
    expected: Expected,
}

impl ClientVerifier {
    pub(super) fn new(current: Arc<Current>, expected: Expected) -> ClientVerifier {
        ClientVerifier { current, expected }
    }
}

impl ClientCertVerifier for ClientVerifier {
    /// Returns no names: the names of our CAs may change while a listener runs, and a client with
    /// one certificate shows that one anyway.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let clients = self.current.get().clients.clone();
        let verified = clients
            .verify_client_cert(end_entity, intermediates, now)
            .map_err(|error| in_words(error, end_entity))
            .and_then(|verified| self.expected.check(end_entity).map(|()| verified));
        verified.inspect_err(|error| tracing::warn!("{}", refusal(end_entity, error)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}
