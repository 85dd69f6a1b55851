//! The owner that a certificate names: URIs in the subject alternative name, `urn:auster:role:…`
//! and `urn:auster:dpid:<16 hex digits>`, as `auster pki` writes them.

use std::fmt;

use openflow::DatapathId;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The use that a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Controller,
    Switch,
}

impl Role {
    /// The URI of the role in a certificate.
    pub fn urn(self) -> String {
        format!("{ROLE_URN}{self}")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Controller => "controller",
            Role::Switch => "switch",
        })
    }
}

/// The owner that a certificate names; both are `None` for certificates made elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateIdentity {
    pub role: Option<Role>,
    pub datapath_id: Option<DatapathId>,
}

impl CertificateIdentity {
    /// Reads the marks. An unclear mark (an unknown role, two roles, an invalid datapath id) is an
    /// error: such a certificate must not pass as an unmarked one.
    pub fn of(certificate: &[u8]) -> Result<CertificateIdentity, &'static str> {
        let (_, certificate) =
            X509Certificate::from_der(certificate).map_err(|_| "not an X.509 certificate")?;
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| "its subject alternative name does not parse")?;
        let mut identity = CertificateIdentity::default();
        let uris = names.iter().flat_map(|names| &names.value.general_names);
        for name in uris {
            let GeneralName::URI(uri) = name else {
                continue;
            };
            if let Some(role) = uri.strip_prefix(ROLE_URN) {
                let role = match role {
                    "controller" => Role::Controller,
                    "switch" => Role::Switch,
                    _ => return Err("it names a role that is neither controller nor switch"),
                };
                if identity.role.replace(role).is_some() {
                    return Err("it names more than one role");
                }
            } else if let Some(digits) = uri.strip_prefix(DATAPATH_URN) {
                let hex = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit());
                let number = u64::from_str_radix(digits, 16);
                let (true, Ok(number)) = (hex, number) else {
                    return Err("its datapath id is not 16 hex digits");
                };
                if identity.datapath_id.replace(DatapathId(number)).is_some() {
                    return Err("it names more than one datapath id");
                }
            }
        }
        Ok(identity)
    }

    /// Whether the certificate's owner may be a peer where `expected` is expected.
    pub fn may_be(&self, expected: Option<Role>) -> bool {
        match (self.role, expected) {
            (Some(role), Some(expected)) => role == expected,
            _ => true,
        }
    }
}

/// The longest text of a certificate in a line of the log.
const SHOWN_LEN_MAX: usize = 200;

/// The names of the owner in a certificate: its DNS names and its common names. Long names are cut,
/// and all are safe in a line of the log.
pub(super) fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.map(|names| &names.value.general_names);
    let dns = alternative
        .into_iter()
        .flatten()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        });
    let common = certificate.subject().iter_common_name();
    let mut names: Vec<String> = Vec::new();
    for name in dns.chain(common.filter_map(|name| name.as_str().ok())) {
        let name = shown(name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The certificate in a line of the log: subject, serial number and names.
pub(super) fn describe(certificate: &[u8]) -> String {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return "what is no X.509 certificate".to_owned();
    };
    let subject = shown(&certificate.subject().to_string());
    let serial = shown(&certificate.raw_serial_as_string());
    let names = shown(&names(&certificate).join(", "));
    format!("'{subject}', serial {serial}, names '{names}'")
}

/// A stranger's text, short and on one line.
fn shown(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).take(SHOWN_LEN_MAX).collect()
}

/// The roles that a certificate names, unchanged, including roles that are not ours.
pub fn role_marks(certificate: &[u8]) -> Result<Vec<String>, &'static str> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|_| "not an X.509 certificate")?;
    let names = certificate
        .subject_alternative_name()
        .map_err(|_| "its subject alternative name does not parse")?;
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let mark = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => Some(uri.strip_prefix(ROLE_URN)?.to_owned()),
        _ => None,
    };
    Ok(names.filter_map(mark).collect())
}

const ROLE_URN: &str = "urn:auster:role:";
const DATAPATH_URN: &str = "urn:auster:dpid:";
