//! Controllers in turn, round after round: what changes on the machine meanwhile changes for all.

use net::method::Method;

use super::conduct::{Conductor, Run};
use super::plan::Plan;
use super::settings::{Settings, SubjectKind};
use super::target::{Target, Usage, usage_of};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;

/// The runs of each subject, in the order of rounds.
pub struct Rounds {
    pub runs: Vec<Vec<Run>>,
    pub interrupted: bool,
}

pub fn run(settings: &Settings, interrupt: &Interrupt) -> Result<Rounds, Failure> {
    let count = settings.subjects.len();
    let mut kept: Vec<Option<(Target, Method)>> = (0..count).map(|_| None).collect();
    let mut runs: Vec<Vec<Run>> = (0..count).map(|_| Vec::new()).collect();
    let progress = Progress::start();
    for round in 0..settings.rounds {
        for (at, subject) in settings.subjects.iter().enumerate() {
            if interrupt.is_set() {
                break;
            }
            let title = format!(
                "round {} of {}, {}",
                round + 1,
                settings.rounds,
                subject.name
            );
            let done = match &subject.kind {
                SubjectKind::Method(method) => {
                    // A process id is of the first controller.
                    let pid = settings.pid.filter(|_| at == 0);
                    let usage = || pid.map(usage_of);
                    measure(settings, method, &title, interrupt, &progress, &usage)
                }
                SubjectKind::Command { transport, words } => {
                    if kept[at].is_none() {
                        kept[at] = Some(Target::start(words, *transport, interrupt)?);
                    }
                    let done = match &kept[at] {
                        Some((target, method)) => {
                            let usage = || Some(target.usage());
                            measure(settings, method, &title, interrupt, &progress, &usage)
                        }
                        None => continue,
                    };
                    if !settings.keep {
                        kept[at] = None;
                    }
                    done
                }
            };
            match done {
                Ok(run) => runs[at].push(run),
                Err(_) if interrupt.is_set() => {}
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(Rounds {
        runs,
        interrupted: interrupt.is_set(),
    })
}

pub fn measure(
    settings: &Settings,
    method: &Method,
    title: &str,
    interrupt: &Interrupt,
    progress: &Progress,
    usage: &dyn Fn() -> Option<Usage>,
) -> Result<Run, Failure> {
    let plan = Plan {
        method: method.clone(),
        ..settings.plan.clone()
    };
    let conductor = Conductor {
        plan: &plan,
        title,
        interrupt,
        progress,
        usage,
    };
    conductor.run()
}
