//! `auster bench scale`: the same controller with more and more switches, each with the same load:
//! the time until all are accepted, the memory per switch, and the delay of an echo.

use serde::Serialize;
use serde_json::json;

use super::CountArgs;
use super::conduct::Setup;
use super::rounds::measure;
use super::settings::Settings;
use super::target::Server;
use crate::certificates::CredentialArgs;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;
use cli::table::Columns;
use measure::stats::Summary;
use report::output::{OutputArgs, Results};
use report::plot::{Plot, Series};

/// Starts a controller for each number of switches, connects them, and sends packet-ins at a rate
/// per switch while every switch asks for echoes.
#[derive(clap::Args)]
pub struct Args {
    /// The controller's command; {port} in it becomes a free port. Put "ssl: " or "quic: " before
    /// it for that transport
    #[arg(long, value_name = "CMD")]
    start: String,

    #[command(flatten)]
    counts: CountArgs,

    /// Packet-ins a second of each switch
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    rate_per_switch: f64,

    /// Hosts behind each switch
    #[arg(short = 'M', long, value_name = "N", default_value_t = 10)]
    macs: u32,

    /// Measurement time per number of switches
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,

    #[command(flatten)]
    credentials: CredentialArgs,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Step {
    switches: u32,
    setup: Setup,
    memory_before_mib: f64,
    memory_peak_mib: f64,
    memory_per_switch_kib: f64,
    offered_per_s: f64,
    answered_per_s: f64,
    missing: u64,
    latency_us: Summary,
    echo_us: Summary,
    generator_cpu: f64,
    target_cpu: f64,
    problem: Option<String>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let counts = args.counts.checked()?;
    // Mistakes in the flags are reported before anything runs.
    let plans = counts.iter().map(|n| settings(args, *n));
    let plans = plans.collect::<Result<Vec<Settings>, Failure>>()?;
    let measurement = args.output.begin()?;
    cli::process::raise_file_limit();
    let interrupt = Interrupt::take()?;
    args.output.say(format_args!(
        "{} switches in turn, {} packet-ins/s and 1 echo/s of each: {}",
        list(counts),
        args.rate_per_switch,
        args.start
    ));
    let mut steps = Vec::new();
    let mut failed = None;
    for settings in &plans {
        let measured = step(args, settings, &interrupt);
        if interrupt.is_set() {
            steps.extend(measured);
            break;
        }
        match measured {
            Ok(step) => steps.push(step),
            // More switches are more load: the following ones would fail too.
            Err(failure) => {
                let step = format!("{} switches", settings.plan.switch_count);
                failed = Some(crate::step_failed(&steps, &step, failure)?);
                break;
            }
        }
    }
    plots(&measurement.results, &steps)?;
    let text = text(&steps);
    let settings = json!({
        "command": args.start,
        "rate_per_switch_per_s": args.rate_per_switch,
        "macs_per_switch": args.macs,
        "duration_s": args.duration,
    });
    measurement.conclude("scale", settings, (steps, interrupt.is_set()), &text)?;
    failed.map_or(Ok(()), Err)
}

fn list(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    numbers.join(", ")
}

/// Returns the settings of `auster bench controller` with the same flags.
fn settings(args: &Args, switches: u32) -> Result<Settings, Failure> {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        args: super::Args,
    }
    let rate = args.rate_per_switch * f64::from(switches);
    let mut words = vec![
        "controller".to_string(),
        format!("--start={}", args.start),
        "--mode=open".to_string(),
        format!("--rate={rate}"),
        format!("--switches={switches}"),
        format!("--macs={}", args.macs),
        format!("--duration={}", args.duration),
        "--announce=keepalive".to_string(),
        "--ready-max=60".to_string(),
        "--rounds=1".to_string(),
    ];
    let files = [
        ("private-key", &args.credentials.private_key),
        ("certificate", &args.credentials.certificate),
        ("ca-cert", &args.credentials.ca_cert),
    ];
    for (flag, file) in files {
        words.extend(
            file.as_ref()
                .map(|file| format!("--{flag}={}", file.display())),
        );
    }
    let flags = <Flags as clap::Parser>::try_parse_from(words)
        .map_err(|error| Failure::usage(error.to_string()))?;
    Settings::resolve(&flags.args)
}

fn step(args: &Args, settings: &Settings, interrupt: &Interrupt) -> Result<Step, Failure> {
    let server = Server::of(&settings.subjects[0].kind, None, interrupt)?;
    let before = server.usage().unwrap_or_default().memory_peak_mib;
    let switches = u32::from(settings.plan.switch_count);
    let title = format!("{switches} switches");
    let run = measure(settings, &server, &title, interrupt, &Progress::start())?;
    if let Some(failure) = run.death() {
        return Err(failure);
    }
    let measured = &run.measured;
    let elapsed_s = measured.elapsed.as_secs_f64().max(1e-9);
    let used = run.target;
    let peak = used.map_or(0.0, |used| used.memory_peak_mib);
    Ok(Step {
        switches,
        setup: run.setup,
        memory_before_mib: before,
        memory_peak_mib: peak,
        memory_per_switch_kib: (peak - before).max(0.0) * 1024.0 / f64::from(switches),
        offered_per_s: args.rate_per_switch * f64::from(switches),
        answered_per_s: measured.rate(),
        missing: measured.tally.missing,
        latency_us: Summary::of_histogram(&measured.delays.answers, 1e-3),
        echo_us: Summary::of_histogram(&measured.delays.echoes, 1e-3),
        generator_cpu: measured.cpu_total().as_secs_f64() / elapsed_s,
        target_cpu: used.map_or(0.0, |used| used.cpu.as_secs_f64() / elapsed_s),
        problem: run.problem,
    })
}

fn text(steps: &[Step]) -> String {
    let mut text = Columns::of(steps)
        .text("switches", |step| step.switches)
        .number("all in s", 3, |step| step.setup.admitted_s)
        .number("all learn s", 3, |step| step.setup.ready_s)
        .number("peak MiB", 1, |step| step.memory_peak_mib)
        .number("KiB each", 1, |step| step.memory_per_switch_kib)
        .number("offered/s", 0, |step| step.offered_per_s)
        .number("answered/s", 0, |step| step.answered_per_s)
        .text("missing", |step| step.missing)
        .number("p99 µs", 1, |step| step.latency_us.p99)
        .number("echo p50 µs", 1, |step| step.echo_us.p50)
        .number("echo p99 µs", 1, |step| step.echo_us.p99)
        .number("its cores", 2, |step| step.target_cpu)
        .number("generator cores", 2, |step| step.generator_cpu)
        .table()
        + "\n";
    for step in steps {
        let lost = step.setup.switches_lost;
        if lost > 0 {
            let why = step.problem.as_deref().unwrap_or("no reason given");
            text += &format!(
                "{} switches: {lost} lost their connection: {why}\n",
                step.switches
            );
        }
    }
    text
}

/// The name of a curve, and the figure that it shows.
type Curve = (&'static str, fn(&Step) -> f64);

fn plots(results: &Results, steps: &[Step]) -> Result<(), Failure> {
    let plot = |file: &str, title: &str, y_label: &str, of: &[Curve]| {
        let line = |(name, of): &Curve| {
            let points = steps.iter().map(|s| (f64::from(s.switches), of(s)));
            Series::new(*name, points.collect())
        };
        let lines = of.iter().map(line).collect();
        let plot = Plot::new(title, ["switches", y_label], lines);
        results.plot(file, &plot.log_x().log_y().lines())
    };
    let growth: [Curve; 2] = [
        ("asked for features", |s| s.setup.admitted_s),
        ("hosts known", |s| s.setup.ready_s),
    ];
    let title = "Time until all switches are taken in";
    plot("connected", title, "s", &growth)?;
    let memory: [Curve; 1] = [("peak", |s| s.memory_peak_mib)];
    plot("memory", "Memory of the controller", "MiB", &memory)?;
    let echo: [Curve; 2] = [("p50", |s| s.echo_us.p50), ("p99", |s| s.echo_us.p99)];
    plot("echo", "Echo while packet-ins run", "µs", &echo)
}
