//! The address of the API of an `auster run`, and the credentials for it.

use std::path::PathBuf;

use net::tls::ClientFiles;

use super::client::{Carrier, Client};
use cli::failure::Failure;
use config::api::{ApiAddress, address as api_address};
use config::tokens;

#[derive(clap::Args)]
pub struct ApiArgs {
    /// The address of auster run's API: [HOST:]PORT, or unix:FILE
    #[arg(long, value_name = "ADDR", env = "AUSTER_API", default_value = "8080",
          value_parser = api_address)]
    api: ApiAddress,

    /// Token file, which other users must not be able to read
    #[arg(long, value_name = "FILE", env = "AUSTER_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Use TLS: the CA of the API's certificate (PEM)
    #[arg(long, value_name = "FILE", env = "AUSTER_API_CA")]
    api_ca: Option<PathBuf>,

    /// The name in the API's certificate, if other than the address
    #[arg(long, value_name = "NAME", requires = "api_ca")]
    api_name: Option<String>,

    /// Client certificate for the API (PEM), instead of a token
    #[arg(long, value_name = "FILE", requires_all = ["api_ca", "api_key"])]
    api_cert: Option<PathBuf>,

    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "api_cert")]
    api_key: Option<PathBuf>,
}

impl ApiArgs {
    pub fn client(&self) -> Result<Client, Failure> {
        let token = match &self.token_file {
            None => None,
            Some(path) => {
                let text = tokens::read_secret(path)?;
                let token = text.lines().next().unwrap_or_default().trim();
                let is_plain = |byte: u8| byte.is_ascii_graphic();
                if token.is_empty() || !token.bytes().all(is_plain) {
                    return Err(Failure::file(path, "its first line is no token"));
                }
                Some(token.to_owned())
            }
        };
        let carrier = match &self.api_ca {
            None => Carrier::Plain,
            Some(ca) => {
                let own = self.api_key.clone().zip(self.api_cert.clone());
                let files = ClientFiles {
                    ca: ca.clone(),
                    own,
                };
                Carrier::tls(&files, &self.api, self.api_name.as_deref())?
            }
        };
        Ok(Client::new(self.api.clone()).with(token, carrier))
    }
}
