//! The two verifiers. They check chain, validity, key usage and revocation with webpki, then the
//! role.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::Current;
use super::identity::{CertificateIdentity, Role};

/// A certificate that chains to our CA and says it is something else than what we expect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongIdentity(String);

fn check_role(certificate: &CertificateDer<'_>, expected: Option<Role>) -> Result<(), Error> {
    let refuse = |why: String| {
        let why = OtherError(Arc::new(WrongIdentity(why)));
        Err(Error::InvalidCertificate(CertificateError::Other(why)))
    };
    match CertificateIdentity::of(certificate) {
        Err(why) => refuse(format!("refused certificate: {why}")),
        Ok(identity) if identity.may_be(expected) => Ok(()),
        Ok(identity) => refuse(format!(
            "its certificate is for a {}, a {} is expected",
            identity.role.map_or(String::new(), |r| r.to_string()),
            expected.map_or(String::new(), |r| r.to_string()),
        )),
    }
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    rustls::crypto::ring::default_provider().signature_verification_algorithms
}

/// Judges the server we dialled, by the credentials in use.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    current: Arc<Current>,
    expected: Option<Role>,
    name: Option<ServerName<'static>>,
}

impl ServerVerifier {
    pub(super) fn new(
        current: Arc<Current>,
        expected: Option<Role>,
        name: Option<ServerName<'static>>,
    ) -> ServerVerifier {
        ServerVerifier {
            current,
            expected,
            name,
        }
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
            // The comparison is the last check, behind the chain, its validity and revocation.
            Err(error) if self.name.is_none() && is_of_the_name(&error) => {
                ServerCertVerified::assertion()
            }
            verified => verified?,
        };
        check_role(end_entity, self.expected)?;
        Ok(verified)
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

/// Judges who dialled us, by the credentials in use; a client without a certificate is refused.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    current: Arc<Current>,
    expected: Option<Role>,
}

impl ClientVerifier {
    pub(super) fn new(current: Arc<Current>, expected: Option<Role>) -> ClientVerifier {
        ClientVerifier { current, expected }
    }
}

impl ClientCertVerifier for ClientVerifier {
    /// None: the names of our CAs may change while a listener runs, and a client with one
    /// certificate shows that one anyway.
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
        let verified = clients.verify_client_cert(end_entity, intermediates, now)?;
        check_role(end_entity, self.expected)?;
        Ok(verified)
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
