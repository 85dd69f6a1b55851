//! Controllers in turn, round after round, so that changes on the machine affect all of them.

use super::conduct::{Conductor, Run};
use super::plan::Plan;
use super::settings::{Settings, Subject};
use super::target::Server;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;

/// The turns of each subject, in their order.
pub struct Rounds<R> {
    pub turns: Vec<Turns<R>>,
    pub interrupted: bool,
}

/// One subject's runs, in the order of rounds.
pub struct Turns<R> {
    pub runs: Vec<(u32, R)>,
    pub failed: Vec<Failed<R>>,
}

/// A round in which the controller did not start, did not answer, or died.
pub struct Failed<R> {
    pub round: u32,
    pub failure: Failure,
    /// The measurements until the controller died.
    pub run: Option<R>,
}

impl<R> Turns<R> {
    fn new() -> Turns<R> {
        Turns {
            runs: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// A controller that was not measured at all fails in the next round too.
    pub fn is_given_up(&self) -> bool {
        self.failed.iter().any(|failed| failed.run.is_none())
    }
}

impl<R> Rounds<R> {
    pub fn new(subjects: &[Subject]) -> Rounds<R> {
        Rounds {
            turns: subjects.iter().map(|_| Turns::new()).collect(),
            interrupted: false,
        }
    }

    /// Returns the failure itself if there is nothing else: one subject, never measured.
    pub fn or_failure(mut self) -> Result<Rounds<R>, Failure> {
        match self.turns.as_mut_slice() {
            [only] if only.runs.is_empty() && only.is_given_up() => {
                Err(only.failed.swap_remove(0).failure)
            }
            _ => Ok(self),
        }
    }

    /// Returns the outcome of the command, after its results are written.
    pub fn verdict(&self, subjects: &[Subject]) -> Result<(), Failure> {
        let each = subjects.iter().zip(&self.turns);
        let failed = each.filter(|(_, turns)| !turns.failed.is_empty());
        let names: Vec<&str> = failed.map(|(subject, _)| subject.name.as_str()).collect();
        match names.is_empty() {
            true => Ok(()),
            false => Err(Failure::negative(format!("failed: {}", names.join(", ")))),
        }
    }
}

pub fn run(settings: &Settings, interrupt: &Interrupt) -> Result<Rounds<Run>, Failure> {
    let count = settings.subjects.len();
    let mut kept: Vec<Option<Server>> = (0..count).map(|_| None).collect();
    let mut rounds = Rounds::new(&settings.subjects);
    let progress = Progress::start();
    for round in 1..=settings.rounds {
        for (at, subject) in settings.subjects.iter().enumerate() {
            let turns: &mut Turns<Run> = &mut rounds.turns[at];
            if interrupt.is_set() {
                break;
            }
            if turns.is_given_up() {
                continue;
            }
            let title = format!("round {round} of {}, {}", settings.rounds, subject.name);
            let server = match kept[at].take() {
                Some(server) => Ok(server),
                // A process id belongs to the first controller.
                None => Server::of(&subject.kind, settings.pid.filter(|_| at == 0), interrupt),
            };
            let measured = server.and_then(|server| {
                let run = measure(settings, &server, &title, interrupt, &progress)?;
                Ok((run, server))
            });
            match measured {
                Ok((run, server)) => match run.death() {
                    None => {
                        turns.runs.push((round, run));
                        kept[at] = Some(server).filter(|_| settings.keep);
                    }
                    Some(failure) => turns.failed.push(Failed {
                        round,
                        failure,
                        run: Some(run),
                    }),
                },
                Err(_) if interrupt.is_set() => {}
                Err(failure) => turns.failed.push(Failed {
                    round,
                    failure,
                    run: None,
                }),
            }
        }
    }
    rounds.interrupted = interrupt.is_set();
    rounds.or_failure()
}

pub fn measure(
    settings: &Settings,
    server: &Server,
    title: &str,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<Run, Failure> {
    let plan = Plan {
        method: server.method.clone(),
        ..settings.plan.clone()
    };
    let conductor = Conductor {
        plan: &plan,
        title,
        interrupt,
        progress,
        server: Some(server),
    };
    conductor.run()
}
