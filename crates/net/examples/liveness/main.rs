//! Liveness under a storm of packet-ins, on real sockets: does a switch's echo request wait for a
//! slow application?
//!
//! The driver runs as in `auster run`, with an application that spends 1 ms of wall time on every
//! packet-in it is given. Emulated switches in a process of their own offer it fifty times what it
//! can take, open loop: what is due is sent whether or not anything was answered. Each sends an
//! echo request every 100 ms, in line with its packet-ins, and its latency counts from the moment
//! it was due, so a sender that was held up hides nothing.
//!
//! ```text
//! cargo run --release -p auster-net --example liveness -- [--transport tcp|ssl|quic] [--json]
//! cargo run --release -p auster-net --example liveness -- --plot RUN.json... > echo.svg
//! ```

mod application;
#[path = "../../tests/common/mod.rs"]
mod common;
mod options;
mod report;
mod switches;

use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use common::{Leaf, Pki, dial_method, listen};
use net::clock::Clock;
use net::driver::{Driver, DriverConfig, Notice};
use net::tls::{Role, Security};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use application::Slow;
use options::{Options, Task};
use report::{Controller, Report, load_average, resident_bytes_max};

fn main() -> ExitCode {
    let task = match Options::parse(std::env::args().skip(1)) {
        Ok(task) => task,
        Err(problem) => {
            eprintln!("liveness: {problem}");
            return ExitCode::from(2);
        }
    };
    match task {
        Task::Measure(options) => {
            let report = runtime().block_on(measure(&options));
            if options.json {
                println!("{}", report.json());
            } else {
                print!("{}", report.table());
            }
            ExitCode::from(u8::from(!report.passed()))
        }
        Task::Switches(options, join) => {
            runtime().block_on(switches::run(&options, &join));
            ExitCode::SUCCESS
        }
        Task::Plot(files) => {
            print!("{}", report::plot(&files));
            ExitCode::SUCCESS
        }
    }
}

/// As `auster run` has it.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().build().expect("threads")
}

async fn measure(options: &Options) -> Report {
    let load_before = load_average();
    let pki = Pki::new();
    pki.issue(switches::CERTIFICATE, &Leaf::of(Role::Switch));
    let security = match options.transport.as_str() {
        "tcp" => Security::plain(),
        _ => pki.controller(),
    };
    let application = Slow::new(options.work, options.spins);
    let (driver, mut notices) =
        Driver::start(application, Clock::start(), DriverConfig::default()).expect("a thread");
    let driver = Arc::new(driver);
    let passive = format!("p{}:0:127.0.0.1", options.transport);
    let listener = listen(&passive, &security).await;
    let method = dial_method(&listener).to_string();
    let accepting = driver.serve_listener(listener);

    let mut child = Command::new(std::env::current_exe().expect("own program"))
        .args(options.for_switches(&method, pki.dir.path()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the switches' process");
    // The switches stay connected until their standard input closes.
    let stay = child.stdin.take();
    let stdout = child.stdout.take().expect("piped");
    let line = BufReader::new(stdout).lines().next_line().await;
    let line = line.expect("a pipe").expect("what the switches saw");
    let switches = serde_json::from_str(&line).expect("their JSON");

    let of_driver = driver.clone();
    let question = move |slow: &mut Slow| counted(&of_driver, slow);
    let mut controller = driver.ask(question).await.expect("the application runs");
    while let Ok(notice) = notices.try_recv() {
        if let Notice::Down { reason, .. } = notice {
            controller.sessions_dropped.push(reason.name());
        }
    }
    drop(stay);
    child.wait().await.expect("the switches' process");
    accepting.abort();
    Report {
        options: options.clone(),
        switches,
        controller,
        load: [load_before, load_average()],
    }
}

/// Asked between two packet-ins, so that every one is in exactly one of the counts.
fn counted(driver: &Driver<Slow>, slow: &Slow) -> Controller {
    let connections = driver.connections();
    let counters = driver.inbox_counters();
    Controller {
        handled: slow.handled,
        shed_inbox_full: counters.packet_ins_shed,
        shed_unread: connections.iter().map(|c| c.packet_ins_shed_unread).sum(),
        backlog: connections.iter().map(|c| c.inbox_backlog as u64).sum(),
        resident_bytes_max: resident_bytes_max(),
        sessions_dropped: Vec::new(),
    }
}
