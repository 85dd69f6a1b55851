//! `auster pki`: does the work of `ovs-pki`, in the same file layout. In addition, a certificate
//! states whether its owner is a controller or a switch, and which datapath a switch is.
//!
//! Open vSwitch checks a controller's certificate only for the signature of its CA. So controllers
//! and switches have a CA each, a switch's certificate is not valid for TLS servers unless
//! requested, and auster refuses a switch's certificate in place of a controller's.

pub mod files;
pub mod make;
pub mod show;

use std::net::IpAddr;
use std::path::PathBuf;

use net::tls::Role;
use openflow::DatapathId;

use crate::pki::files::Layout;
use crate::pki::make::{KeyKind, Owner, Purpose};
use cli::failure::Failure;
use cli::output::say;
use config::tokens::Role as ApiRole;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Make the two certificate authorities, one for controllers and one for switches
    #[command(after_help = "\
Example:
  auster pki init --dir /etc/auster/pki")]
    Init(InitArgs),
    /// Make a controller's key and certificate: NAME-privkey.pem, NAME-req.pem, NAME-cert.pem
    #[command(after_help = "\
Example:
  auster pki controller c1 --host 192.0.2.1 --host c1.example.net

With Open vSwitch's switches trusting controllerca/cacert.pem, c1 trusts switchca/cacert.pem:
  ovs-testcontroller -p c1-privkey.pem -c c1-cert.pem -C pki/switchca/cacert.pem pssl:")]
    Controller(ControllerArgs),
    /// Make a switch's key and certificate: NAME-privkey.pem, NAME-req.pem, NAME-cert.pem
    #[command(after_help = "\
Example:
  auster pki switch s1 --dpid 0000000000000001

Then, on the switch:
  ovs-vsctl set-ssl $PWD/s1-privkey.pem $PWD/s1-cert.pem $PWD/pki/controllerca/cacert.pem
  ovs-vsctl set-controller br0 ssl:192.0.2.1:6653")]
    Switch(SwitchArgs),
    /// Make a key and a certificate for a user of the API of auster run: NAME-privkey.pem,
    /// NAME-req.pem, NAME-cert.pem
    ///
    /// The first operator also makes the authority operatorca, whose certificate is ca in
    /// [api.tls].
    #[command(after_help = "\
Example:
  auster pki operator alice --role operate")]
    Operator(OperatorArgs),
    /// Show a certificate's role, datapath, names and validity
    #[command(after_help = "\
Example:
  auster pki show s1-cert.pem")]
    Show(ShowArgs),
}

#[derive(clap::Args)]
pub struct InitArgs {
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
pub struct ControllerArgs {
    /// Name for the files and the certificate's subject
    #[arg(value_parser = name)]
    name: String,

    /// A DNS name or IP address at which switches reach the controller; repeat for more
    #[arg(long, value_name = "NAME_OR_IP", value_parser = host)]
    host: Vec<String>,

    /// Directory for the three files
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,

    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
pub struct SwitchArgs {
    /// Name for the files and the certificate's subject
    #[arg(value_parser = name)]
    name: String,

    /// Datapath of the certificate: 16 hex digits, 0x…, colons or a decimal number. Without it, the
    /// certificate is valid for any
    #[arg(long, value_name = "DPID")]
    dpid: Option<DatapathId>,

    /// Make the certificate valid for a TLS server too, for a switch that listens (pssl:)
    #[arg(long)]
    listens: bool,

    /// Directory for the three files
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,

    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
pub struct OperatorArgs {
    /// Name for the files, the certificate's subject and the user in the audit
    #[arg(value_parser = name)]
    name: String,

    /// The rights of the user
    #[arg(long, value_enum)]
    role: ApiRole,

    /// Directory for the three files
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,

    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
pub struct ShowArgs {
    /// A PEM file with a certificate
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct CommonArgs {
    /// The directory with controllerca/ and switchca/, as made by `auster pki init` or `ovs-pki`
    #[arg(long, value_name = "DIR", default_value = "pki")]
    dir: PathBuf,

    /// The kind of key to make
    #[arg(long, value_name = "KIND", default_value = "p256")]
    key: KeyKind,

    /// Validity of the certificate, from now
    #[arg(long, value_name = "DAYS", default_value_t = 3650,
          value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,

    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Init(args) => init(&args.common),
        Command::Controller(args) => {
            let owner = Owner {
                name: args.name,
                purpose: Role::Controller.into(),
                hosts: args.host,
                datapath_id: None,
                listens: true,
            };
            issue(&owner, args.out, &args.common)
        }
        Command::Switch(args) => {
            let owner = Owner {
                name: args.name,
                purpose: Role::Switch.into(),
                hosts: vec![],
                datapath_id: args.dpid,
                listens: args.listens,
            };
            issue(&owner, args.out, &args.common)
        }
        Command::Operator(args) => {
            let purpose = Purpose::Api(args.role);
            let layout = Layout::new(&args.common.dir);
            // Users with only switches need no authority for operators.
            if !layout.ca_key(purpose).exists() && !layout.ca_certificate(purpose).exists() {
                make_authority(purpose, &layout, &args.common)?;
            }
            let owner = Owner {
                name: args.name,
                purpose,
                hosts: vec![],
                datapath_id: None,
                listens: false,
            };
            issue(&owner, args.out, &args.common)
        }
        Command::Show(args) => show::show(&args.file, args.json),
    }
}

fn init(common: &CommonArgs) -> Result<(), Failure> {
    let layout = Layout::new(&common.dir);
    let purposes = [Role::Controller, Role::Switch].map(Purpose::from);
    let targets = purposes.map(|of| [layout.ca_certificate(of), layout.ca_key(of)]);
    files::must_not_exist(targets.as_flattened(), common.force)?;
    for purpose in purposes {
        make_authority(purpose, &layout, common)?;
    }
    Ok(())
}

fn make_authority(purpose: Purpose, layout: &Layout, common: &CommonArgs) -> Result<(), Failure> {
    let ca = make::authority(purpose, common.key, common.days)?;
    files::write_secret(&layout.ca_key(purpose), &ca.key)?;
    files::write_public(&layout.ca_certificate(purpose), &ca.certificate)?;
    say!("{}", layout.ca_certificate(purpose).display());
    Ok(())
}

fn issue(owner: &Owner, out: PathBuf, common: &CommonArgs) -> Result<(), Failure> {
    let layout = Layout::new(&common.dir);
    let [key, request, certificate] =
        ["privkey", "req", "cert"].map(|what| out.join(format!("{}-{what}.pem", owner.name)));
    let targets = [key.clone(), request.clone(), certificate.clone()];
    files::must_not_exist(&targets, common.force)?;
    let ca_key = files::read_ca(&layout.ca_key(owner.purpose), &layout)?;
    let ca_certificate = files::read_ca(&layout.ca_certificate(owner.purpose), &layout)?;
    let signer = make::Signer::new(&ca_certificate, &ca_key)
        .map_err(|problem| Failure::network(format!("{}: {problem}", common.dir.display())))?;
    let made = signer.issue(owner, common.key, common.days)?;
    files::write_secret(&key, &made.key)?;
    files::write_public(&request, &made.request)?;
    files::write_public(&certificate, &made.certificate)?;
    say!("{}", certificate.display());
    Ok(())
}

/// Accepts only a plain file name.
fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.starts_with(['-', '.']) || !text.chars().all(plain) {
        return Err(
            "use letters, digits, '-', '_' and '.', starting with a letter or digit".into(),
        );
    }
    Ok(text.into())
}

fn host(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*');
    if text.parse::<IpAddr>().is_ok() || (!text.is_empty() && text.chars().all(plain)) {
        return Ok(text.into());
    }
    Err("neither a DNS name nor an IP address".into())
}
