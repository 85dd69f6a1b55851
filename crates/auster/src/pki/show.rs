//! `auster pki show`.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use net::tls::{CertificateIdentity, role_marks};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::Serialize;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

use cli::date::utc;
use cli::failure::Failure;
use cli::output::{say, say_part};
use config::tokens::Role as ApiRole;

pub fn show(path: &Path, as_json: bool) -> Result<(), Failure> {
    let text = std::fs::read(path).map_err(|error| Failure::file(path, error))?;
    let bad = |problem: &str| Failure::network(format!("{}: {problem}", path.display()));
    let der = CertificateDer::from_pem_slice(&text)
        .map_err(|_| bad("no certificate in it (-----BEGIN CERTIFICATE-----)"))?;
    let facts = Facts::of(&der).map_err(|problem| bad(&problem))?;
    if as_json {
        let document = serde_json::to_string_pretty(&facts).map_err(Failure::negative)?;
        say!("{document}");
    } else {
        say_part!("{}", facts.in_words());
    }
    Ok(())
}

/// The statements of a certificate, a line each.
pub fn describe(der: &[u8]) -> Result<String, String> {
    Ok(Facts::of(der)?.in_words())
}

/// The statements of a certificate.
#[derive(Serialize)]
struct Facts {
    subject: String,
    issuer: String,
    serial: String,
    is_authority: bool,
    /// `null` if the certificate does not state it.
    role: Option<String>,
    /// `null` if the owner may speak for any datapath.
    datapath_id: Option<String>,
    names: Vec<String>,
    /// `null` if the certificate is valid for any use.
    valid_for: Option<Vec<&'static str>>,
    valid_from: String,
    valid_until: String,
}

impl Facts {
    fn of(der: &[u8]) -> Result<Facts, String> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|_| "not an X.509 certificate")?;
        let marks = role_marks(der)?;
        let of_api = match &marks[..] {
            [mark] => ApiRole::of_mark(mark),
            _ => None,
        };
        let identity = match of_api {
            Some(_) => CertificateIdentity::default(),
            None => CertificateIdentity::of(der)?,
        };
        let of_api = of_api.map(|role| format!("{} of the API", role.mark()));
        let usage = certificate
            .extended_key_usage()
            .map_err(|_| "its extended key usage does not parse")?;
        let valid_for = usage.map(|usage| {
            let uses = [
                (usage.value.server_auth, "TLS server"),
                (usage.value.client_auth, "TLS client"),
            ];
            let uses = uses.into_iter().filter(|(has, _)| *has);
            uses.map(|(_, what)| what).collect()
        });
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| "its subject alternative name does not parse")?;
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let validity = certificate.validity();
        let time = |at: &ASN1Time| utc(at.timestamp().try_into().unwrap_or(0));
        Ok(Facts {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            serial: certificate.raw_serial_as_string(),
            is_authority: certificate.is_ca(),
            role: identity.role.map(|role| role.to_string()).or(of_api),
            datapath_id: identity.datapath_id.map(|dpid| dpid.to_string()),
            names: names.map(name).collect(),
            valid_for,
            valid_from: time(&validity.not_before),
            valid_until: time(&validity.not_after),
        })
    }

    /// One line for each statement.
    fn in_words(&self) -> String {
        let or = |said: &Option<String>, other: &str| said.clone().unwrap_or(other.to_owned());
        let valid_for = self.valid_for.as_ref().map(|uses| uses.join(", "));
        let mut text = String::new();
        for (what, said) in [
            ("subject", self.subject.clone()),
            ("issuer", self.issuer.clone()),
            ("serial", self.serial.clone()),
            (
                "authority",
                if self.is_authority { "yes" } else { "no" }.to_owned(),
            ),
            ("role", or(&self.role, "not said")),
            ("datapath", or(&self.datapath_id, "any")),
            ("names", self.names.join(", ")),
            ("valid for", or(&valid_for, "anything")),
            ("valid from", self.valid_from.clone()),
            ("valid until", self.valid_until.clone()),
        ] {
            let _ = writeln!(text, "{what:<12}{said}");
        }
        text
    }
}

fn name(name: &GeneralName) -> String {
    match name {
        GeneralName::DNSName(dns) => format!("DNS:{dns}"),
        GeneralName::URI(uri) => (*uri).into(),
        GeneralName::IPAddress(octets) => {
            let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
            address.map_or("IP:malformed".into(), |address| format!("IP:{address}"))
        }
        other => other.to_string(),
    }
}
