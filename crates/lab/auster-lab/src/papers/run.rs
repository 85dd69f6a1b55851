//! `auster papers run`: runs the commands of the list one after the other, each within its time
//! limit, and writes the report on their results.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::papers::judge::Book;
use crate::papers::list::{Form, List, Measurement, Which};
use crate::papers::store::{Outcome, RUN_FILE, Ran, RunRecord, Store};
use cli::date::day;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::{note, say};
use cli::progress::Progress;
use report::output::HAS_RESULTS;

pub const LIST: &str = "scenarios/papers.toml";
pub const REPORT_FILE: &str = "report.html";
/// The file of a command's output, beside its result.
const OUTPUT_FILE: &str = "output.txt";

/// A command is ended when it takes longer than its time in the list times this factor.
const LATE_FACTOR: f64 = 1.5;
/// The shortest time limit of a command: a transfer starved by others takes a minute.
const LIMIT_MIN: Duration = Duration::from_secs(180);
/// No command starts when less than this is left of the total time.
const LEFT_MIN: Duration = Duration::from_secs(10);
/// Time for a command that has to end, in which it takes its networks down and writes its results.
const GRACE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// "It ran, and the answer is no": a verdict, and so a result.
const NEGATIVE_CODE: i32 = 1;
/// Directories for one day, before the user has to give a name.
const SAME_DAY_MAX: u32 = 100;

#[derive(clap::Args)]
pub struct Args {
    /// The list of figures and of the commands that measure them
    #[arg(long, value_name = "FILE", default_value = LIST)]
    list: PathBuf,
    /// Run the subset that takes nine minutes
    #[arg(long)]
    quick: bool,
    /// Run the long forms, whose results are stored under results/; they take some hours
    #[arg(long, conflicts_with = "quick")]
    long: bool,
    /// Run only these measurements, by their names in the list
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Minutes for all commands together; commands not started by then are left out [default: half
    /// as long again as it usually takes, with --long none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: Option<u32>,
    /// Directory for results and report [default: results/papers-DATE]
    #[arg(short = 'o', long, alias = "results", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Overwrite the results that --out has
    #[arg(long, requires = "out")]
    force: bool,
    /// Print what would run, and about how long it would take
    #[arg(long)]
    plan: bool,
}

impl Args {
    fn which(&self) -> Which {
        match (self.quick, self.long) {
            (true, _) => Which::Quick,
            (_, true) => Which::Long,
            _ => Which::Whole,
        }
    }

    fn time(&self) -> Option<Duration> {
        let wanted = self.minutes.map(f64::from);
        // On a busy machine the whole run may take longer, just as each command may.
        let usual = || Some(self.which().minutes_max()? * LATE_FACTOR);
        let minutes = wanted.or_else(usual)?;
        Some(Duration::from_secs_f64(minutes * 60.0))
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let list = List::read(&args.list)?;
    check_names(&list, &args.only)?;
    if args.plan {
        plan(&list, args);
        return Ok(());
    }
    let dir = directory(args.out.as_deref())?;
    if dir.join(RUN_FILE).exists() && !args.force {
        return Err(Failure::file(&dir, HAS_RESULTS));
    }
    let interrupt = Interrupt::take()?;
    let started_unix_s = unix_seconds();
    let course = Course {
        started: Instant::now(),
        time: args.time(),
        program: cli::program::auster()?,
        dir: dir.clone(),
        interrupt,
    };
    let chosen = chosen(&list, args);
    let count = chosen.iter().filter(|(_, form)| form.is_some()).count();
    let mut measurements = Vec::new();
    let mut number = 0;
    for (measurement, form) in chosen {
        measurements.push(match form {
            None => not_in_this_run(measurement),
            Some(form) => {
                number += 1;
                course.run(measurement, form, (number, count))?
            }
        });
        let record = RunRecord {
            which: args.which().name().to_owned(),
            started_unix_s,
            took_s: course.started.elapsed().as_secs_f64().round(),
            measurements: measurements.clone(),
        };
        // Written after each command, so that its results are on record whatever happens later.
        let json = serde_json::to_string_pretty(&record).map_err(|e| Failure::file(&dir, e))?;
        let path = dir.join(RUN_FILE);
        std::fs::write(&path, json + "\n").map_err(|e| Failure::file(&path, e))?;
    }
    let store = Store::open(&list, std::slice::from_ref(&dir))?;
    let book = Book::of(&list, &store);
    store
        .doubts
        .iter()
        .for_each(|doubt| note!("auster: {doubt}"));
    say!();
    super::write_page(&dir.join(REPORT_FILE), &list, &book, &store)?;
    conclude(&measurements)
}

/// The requested measurements, each with its form if it has one.
fn chosen<'l>(list: &'l List, args: &Args) -> Vec<(&'l Measurement, Option<&'l Form>)> {
    let is_wanted = |name: &String| args.only.is_empty() || args.only.contains(name);
    let all = list.measurements.iter();
    let form = |m: &'l Measurement| m.form(args.which()).filter(|_| is_wanted(&m.name));
    all.map(|measurement| (measurement, form(measurement)))
        .collect()
}

fn check_names(list: &List, only: &[String]) -> Result<(), Failure> {
    let unknown: Vec<&String> = only
        .iter()
        .filter(|name| list.measurement(name).is_none())
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let known: Vec<&str> = list.measurements.iter().map(|m| m.name.as_str()).collect();
    Err(Failure::usage(format!(
        "--only: there is no measurement {}; there are {}",
        unknown
            .iter()
            .map(|n| n.as_str())
            .collect::<Vec<_>>()
            .join(", "),
        known.join(", ")
    )))
}

fn plan(list: &List, args: &Args) {
    let mut minutes = 0.0;
    for (measurement, form) in chosen(list, args) {
        if let Some(form) = form {
            minutes += form.minutes;
            say!(
                "{:24} {:5.1} min  auster {}",
                measurement.name,
                form.minutes,
                form.words.join(" ")
            );
        }
    }
    say!("{:24} {minutes:5.1} min", "all");
}

/// Creates the run's own directory.
fn directory(wanted: Option<&Path>) -> Result<PathBuf, Failure> {
    let today = day(unix_seconds());
    let names = std::iter::once(String::new()).chain((2..SAME_DAY_MAX).map(|n| format!("-{n}")));
    let mut usual = names.map(|end| PathBuf::from(format!("results/papers-{today}{end}")));
    let dir = match wanted {
        Some(dir) => dir.to_path_buf(),
        None => usual
            .find(|dir| !dir.exists())
            .ok_or_else(|| Failure::usage("results/ is full of papers-<date>; give -o DIR"))?,
    };
    std::fs::create_dir_all(&dir).map_err(|e| Failure::file(&dir, e))?;
    Ok(dir)
}

fn not_in_this_run(measurement: &Measurement) -> Ran {
    Ran {
        name: measurement.name.clone(),
        command: measurement.told(),
        took_s: 0.0,
        outcome: Outcome::NotInThisRun,
        said: None,
    }
}

/// Fails if a measurement could not be run. Its findings are no failure.
fn conclude(measurements: &[Ran]) -> Result<(), Failure> {
    let lost = measurements
        .iter()
        .filter(|ran| matches!(ran.outcome, Outcome::Failed | Outcome::LeftOut));
    let lost: Vec<String> = lost
        .map(|ran| format!("{} ({})", ran.name, ran.said.as_deref().unwrap_or("")))
        .collect();
    match lost.is_empty() {
        true => Ok(()),
        false => Err(Failure::negative(format!(
            "there is no result of {}",
            lost.join(", ")
        ))),
    }
}

/// The frame of a run: its start, time limit, program, directory and interrupt.
struct Course {
    started: Instant,
    time: Option<Duration>,
    program: PathBuf,
    dir: PathBuf,
    interrupt: Interrupt,
}

impl Course {
    fn left(&self) -> Duration {
        let time = self.time.unwrap_or(Duration::MAX);
        time.saturating_sub(self.started.elapsed())
    }

    fn run(
        &self,
        measurement: &Measurement,
        form: &Form,
        (number, count): (usize, usize),
    ) -> Result<Ran, Failure> {
        let name = &measurement.name;
        let mut ran = Ran {
            name: name.clone(),
            command: format!("auster {}", form.words.join(" ")),
            took_s: 0.0,
            outcome: Outcome::LeftOut,
            said: None,
        };
        let place = format!("[{number}/{count}] {name}");
        if self.interrupt.is_set() {
            ran.said = Some("interrupted".to_owned());
            return Ok(ran);
        }
        let left = self.left();
        if left < LEFT_MIN {
            ran.said = Some("no time was left".to_owned());
            say!("{place}: left out, no time is left");
            return Ok(ran);
        }
        say!("{place}: {}, about {:.1} min", ran.command, form.minutes);
        let late = Duration::from_secs_f64(form.minutes * 60.0 * LATE_FACTOR);
        let begun = Instant::now();
        let out = self.dir.join(name);
        let ended = self.wait(&mut self.start(form, &out)?, late.max(LIMIT_MIN).min(left))?;
        ran.took_s = begun.elapsed().as_secs_f64().round();
        let found = out.join("result.json").is_file();
        (ran.outcome, ran.said) = match (ended, found) {
            (End::Itself(status), true) if matches!(status.code(), Some(0 | NEGATIVE_CODE)) => {
                (Outcome::Ran, None)
            }
            (End::Itself(status), _) => (Outcome::Failed, Some(said(status, &out))),
            (End::Late, _) => (Outcome::Failed, Some("it took too long".to_owned())),
            (End::Interrupted, _) => (Outcome::LeftOut, Some("interrupted".to_owned())),
        };
        say!(
            "{place}: {} after {:.0} s{}",
            match ran.outcome {
                Outcome::Ran => "done",
                _ => "FAILED",
            },
            ran.took_s,
            ran.said
                .as_ref()
                .map_or(String::new(), |said| format!(": {said}"))
        );
        Ok(ran)
    }

    fn start(&self, form: &Form, out: &Path) -> Result<Child, Failure> {
        std::fs::create_dir_all(out).map_err(|e| Failure::file(out, e))?;
        // If this run fails, an earlier run's result must not pass for its result.
        let _ = std::fs::remove_file(out.join("result.json"));
        let path = out.join(OUTPUT_FILE);
        let log = File::create(&path).map_err(|e| Failure::file(&path, e))?;
        let errors = log.try_clone().map_err(|e| Failure::file(&path, e))?;
        // The command has its own group, so that we can pass on Ctrl-C and end the whole group.
        let child = Command::new(&self.program)
            .args(&form.words)
            .arg("-o")
            .arg(out)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn();
        child.map_err(|e| Failure::machine(format!("{}: {e}", self.program.display())))
    }

    /// Waits until the command ends by itself, or is ended.
    fn wait(&self, child: &mut Child, limit: Duration) -> Result<End, Failure> {
        let progress = Progress::start();
        let begun = Instant::now();
        let failed = |e: std::io::Error| Failure::machine(format!("waiting for a command: {e}"));
        let pid = Pid::from_raw(child.id() as i32);
        let mut end: Option<(End, Instant)> = None;
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                // End processes that the command left behind, if any.
                let _ = killpg(pid, Signal::SIGKILL);
                return Ok(end.map_or(End::Itself(status), |(end, _)| end));
            }
            let told = match (self.interrupt.is_set(), begun.elapsed() >= limit) {
                (true, _) => Some(End::Interrupted),
                (_, true) => Some(End::Late),
                _ => None,
            };
            match (&end, told) {
                (None, Some(told)) => {
                    let _ = kill(pid, Signal::SIGINT);
                    end = Some((told, Instant::now()));
                }
                (Some((_, since)), _) if since.elapsed() > GRACE => {
                    let _ = killpg(pid, Signal::SIGKILL);
                }
                _ => {}
            }
            progress.say(format_args!(
                "  {:.0} s of at most {:.0} s",
                begun.elapsed().as_secs_f64(),
                limit.as_secs_f64()
            ));
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

enum End {
    Itself(ExitStatus),
    Late,
    Interrupted,
}

/// The last line of a command's output, or its exit status.
fn said(status: ExitStatus, out: &Path) -> String {
    let lines = File::open(out.join(OUTPUT_FILE)).map(BufReader::new);
    let lines = lines.into_iter().flat_map(|file| file.lines());
    let lines: Vec<String> = lines
        .map_while(Result::ok)
        .filter(|line| !line.trim().is_empty())
        .collect();
    // After an error about wrong flags, the usage follows.
    let is_error = |line: &&String| line.starts_with("auster: ") || line.starts_with("error: ");
    let last = lines.iter().rfind(is_error).or(lines.last());
    let how = match (status.code(), status.signal()) {
        (Some(0), _) => "it kept no result".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "it ended".to_owned(),
    };
    match last {
        Some(line) => format!("{how}: {}", line.trim().trim_start_matches("auster: ")),
        None => how,
    }
}
