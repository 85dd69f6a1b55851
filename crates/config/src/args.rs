//! The options of `auster run`.

use std::path::PathBuf;

use net::method::Method;

use crate::api::{self, ApiAddress};
use crate::guests;
use crate::settings::sockets::status_socket;
use crate::settings::{self, Forwarding, Mode, session_version};

/// Control a network: every switch that connects is set up, links and hosts are found, and paths
/// are installed.
///
/// Without METHOD it listens on ptcp:6653:127.0.0.1, or on pssl:6653 when certificates are given.
#[derive(Clone, clap::Args)]
pub struct Args {
    /// Listen for switches, or dial them: ptcp:[PORT][:HOST], pssl:, pquic:, punix:FILE;
    /// tcp:HOST[:PORT], ssl:, quic:, unix:FILE
    #[arg(value_name = "METHOD")]
    pub methods: Vec<Method>,

    /// Listen for switches
    #[arg(long, value_name = "METHOD")]
    pub listen: Vec<Method>,

    /// Dial a switch that listens, and redial whenever the connection ends
    #[arg(long, value_name = "METHOD")]
    pub connect: Vec<Method>,

    /// Listen for switches' databases (ptcp:[PORT][:HOST], pssl: with ovs-vsctl set-manager), or
    /// dial them (tcp:HOST[:PORT], ssl:, unix:FILE)
    #[arg(long, value_name = "METHOD", value_parser = settings::ovsdb_method)]
    pub ovsdb: Vec<Method>,

    /// Share each switch, through auster, with another controller such as os-ken, Ryu or Faucet:
    /// NAME=tcp:HOST:PORT,priority=LOW-HIGH[,table=N][,tables=N][,switches=1+2]
    /// [,rate_max=N][,on_disconnect=keep|remove][,match=MATCH]. Repeat for more
    #[arg(long, value_name = "NAME=METHOD,…", value_parser = guests::given)]
    pub guest: Vec<guests::Stated>,

    /// Settings in a TOML file; options override them
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// How and when to set flow entries
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,

    /// How to forward packets between switches [default: fabric; with a mode: paths]
    #[arg(long, value_enum)]
    pub forwarding: Option<Forwarding>,

    /// OpenFlow versions to offer [default: 1.0,1.3]
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',', value_parser = session_version)]
    pub versions: Vec<openflow::Version>,

    /// Private key (PEM)
    #[arg(short = 'p', long, value_name = "FILE", alias = "ctl-privkey")]
    pub private_key: Option<PathBuf>,

    /// Certificate (PEM)
    #[arg(short = 'c', long, value_name = "FILE", alias = "ctl-cert")]
    pub certificate: Option<PathBuf>,

    /// The CA that switches' certificates must chain to (PEM)
    #[arg(short = 'C', long, value_name = "FILE", alias = "ca-certs")]
    pub ca_cert: Option<PathBuf>,

    /// Revocation lists for switches' certificates (PEM), one by each CA in -C. SIGHUP rereads this
    /// and the three files above
    #[arg(long, value_name = "FILE")]
    pub crl: Option<PathBuf>,

    /// Serve only this datapath; repeat for more
    #[arg(long, value_name = "DPID")]
    pub allow_dpid: Vec<openflow::DatapathId>,

    /// Keep everything set through the API in this directory, across restarts
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// Send the network's state as a JSON document to each connection to this Unix socket
    #[arg(long, value_name = "FILE", value_parser = status_socket)]
    pub status: Option<PathBuf>,

    /// Serve the REST API (/openapi.json) at [HOST:]PORT, for this machine only without a HOST; or
    /// at unix:FILE, for that file's owner and root. Access from other machines needs users: see
    /// [api] in the manual. Repeat for more
    #[arg(long, value_name = "ADDR", value_parser = api::address)]
    pub api: Vec<ApiAddress>,

    /// Accept API requests for this name or address too, besides localhost and the address of
    /// --api; others are refused. Repeat for more
    #[arg(long, value_name = "NAME", value_parser = api::host)]
    pub api_host: Vec<String>,

    /// Policy map that selects which messages go first under overload: a file, or auster, paper or
    /// none [default: auster]. SIGHUP rereads the file
    #[arg(long, value_name = "FILE|auster|paper|none")]
    pub policy: Option<String>,

    /// The intended network: report differences, and in hybrid mode set the paths between the hosts
    /// that it names before they send. SIGHUP rereads the file
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,

    /// Threads that serve connections; one per core if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,

    /// Print events as JSON lines
    #[arg(long)]
    pub json: bool,

    /// Check options, settings and every file that they name, report all mistakes, and start
    /// nothing
    #[arg(long)]
    pub check: bool,

    // The flags of Ryu, so that its command lines work.
    #[arg(long, hide = true, value_name = "HOST")]
    pub ofp_listen_host: Option<String>,
    #[arg(long, hide = true, value_name = "PORT")]
    pub ofp_tcp_listen_port: Option<u16>,
    #[arg(long, hide = true, value_name = "PORT")]
    pub ofp_ssl_listen_port: Option<u16>,
}

impl Args {
    /// Removes `--json`: for `auster config show` it is not a setting.
    pub fn take_json(&mut self) -> bool {
        std::mem::take(&mut self.json)
    }
}
