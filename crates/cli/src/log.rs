//! The log on standard error, and how a program ends.

use std::io::IsTerminal;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::Failure;
use crate::limits::LogLimits;
use crate::output;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Log to standard error: error, warn, info, debug, trace, or a filter such as `info,net=debug`
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "AUSTER_LOG",
        default_value = "warn"
    )]
    log: String,

    /// How log lines look
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Runs a command between the start of its log and the end of its output, and answers with the
/// exit code.
pub fn run(args: &Args, command: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    let limits = LogLimits::start();
    let done = start(args, limits.clone()).and_then(|()| {
        let done = command();
        limits.finish();
        done
    });
    let code = match done.and_then(|()| output::check()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    };
    // Readers get a moment for what they have not read yet.
    output::flush();
    code
}

fn start(args: &Args, limits: LogLimits) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&args.log)
        .map_err(|e| Failure::usage(format!("--log '{}' is not a filter: {e}", args.log)))?;
    // Colours are for people: in a file or a journal they are noise.
    let has_colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(has_colours)
        .with_writer(|| output::Log);
    let limited = tracing_subscriber::registry().with(filter).with(limits);
    match args.log_format {
        Format::Text => limited.with(log).init(),
        Format::Json => {
            output::log_as_json();
            limited.with(log.json()).init();
        }
    }
    Ok(())
}
