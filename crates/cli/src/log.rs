//! The log on standard error, and how a program ends.

use std::fmt;
use std::io::IsTerminal;
use std::process::ExitCode;

use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
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

    /// The format of log lines
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Runs a command between the start of its log and the end of its output, and returns the exit
/// code.
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
    // Readers get a moment to read the rest.
    output::flush();
    code
}

fn start(args: &Args, limits: LogLimits) -> Result<(), Failure> {
    let filter = filter(&args.log)?;
    // Colours are for people: in a file or a journal they are noise.
    let has_colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(has_colours)
        .with_writer(|| output::Log);
    let limited = tracing_subscriber::registry().with(filter).with(limits);
    let is_journal = output::is_journal();
    match args.log_format {
        // The journal has the time of each line, and its own priorities.
        Format::Text if is_journal => {
            let log = log.without_time().with_level(false);
            limited.with(log.map_event_format(Prioritised)).init();
        }
        Format::Text => limited.with(log).init(),
        Format::Json => {
            output::log_as_json();
            let log = log.json();
            match is_journal {
                true => limited.with(log.map_event_format(Prioritised)).init(),
                false => limited.with(log).init(),
            }
        }
    }
    Ok(())
}

/// Parses a filter. A word alone is a level: as the name of a module it would silence all others,
/// mistakes included.
fn filter(text: &str) -> Result<Targets, Failure> {
    let words = text.split(',').map(str::trim);
    let alone = |word: &&str| !word.is_empty() && !word.contains('=');
    for word in words.filter(alone) {
        word.parse::<LevelFilter>().map_err(|_| {
            Failure::usage(format!(
                "--log '{text}' is not a filter: '{word}' is not a level; write off, error, warn, \
                 info, debug or trace, or a filter such as info,net=debug"
            ))
        })?;
    }
    let filter = text.parse::<Targets>();
    // A datagram that cannot be sent is as good as lost; those who wait for an answer report that.
    let filter = filter.map(|filter| match text.contains("quinn_udp") {
        true => filter,
        false => filter.with_target("quinn_udp", LevelFilter::OFF),
    });
    filter.map_err(|problem| Failure::usage(format!("--log '{text}' is not a filter: {problem}")))
}

/// Begins each line with its priority, in the form that the journal reads from a service's output
/// (sd-daemon(3)).
struct Prioritised<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = event.metadata().level().as_str();
        writer.write_str(output::priority(level))?;
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused_and_not_a_filter_that_lets_nothing_through() {
        for good in ["warn", "INFO", "off", "info,net=debug", "net=debug"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for (bad, part) in [
            (
                "warning",
                "'warning' is not a level; write off, error, warn",
            ),
            ("loud", "'loud'"),
            ("info,net", "'net'"),
            ("bogus=zz", "--log 'bogus=zz'"),
        ] {
            let refused = filter(bad).unwrap_err();
            assert!(refused.message().contains(part), "{}", refused.message());
        }
    }

    #[test]
    fn a_library_reports_no_unsent_datagram_unless_it_is_asked_to() {
        let is_written = |text| {
            let filter = filter(text).unwrap();
            filter.would_enable("quinn_udp", &tracing::Level::WARN)
        };
        assert!(!is_written("warn") && !is_written("debug") && !is_written("off"));
        assert!(is_written("warn,quinn_udp=warn"));
        assert!(
            filter("warn")
                .unwrap()
                .would_enable("net::tls", &tracing::Level::WARN)
        );
    }
}
