//! The machine that a document's figures were taken on.

use std::process::Command;

use serde::Serialize;

/// The machine that figures were taken on, as every published document names it.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub kernel: String,
    pub cpu: String,
    pub cpu_count: usize,
    pub auster: String,
    pub open_vswitch: String,
}

impl Machine {
    pub fn here() -> Machine {
        let cpu_info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu_info
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        Machine {
            kernel: version_line("uname", "-sr"),
            cpu: model
                .map_or("unknown", |m| m.trim_start_matches([' ', '\t', ':']))
                .to_string(),
            cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
            auster: env!("CARGO_PKG_VERSION").to_string(),
            open_vswitch: version_line("ovs-vswitchd", "--version"),
        }
    }
}

/// The first line that a program prints, or `unknown`. Some print their version on standard error.
pub fn version_line(program: &str, argument: &str) -> String {
    let Ok(output) = Command::new(program).arg(argument).output() else {
        return "unknown".to_string();
    };
    let [out, err] =
        [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    let line = out
        .lines()
        .chain(err.lines())
        .find(|line| !line.trim().is_empty());
    line.unwrap_or("unknown").trim().to_string()
}
