//! Controllers in turn, round after round: what changes on the machine meanwhile changes for all.

use super::conduct::{Conductor, Run};
use super::plan::Plan;
use super::settings::Settings;
use super::target::Server;
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
    let mut kept: Vec<Option<Server>> = (0..count).map(|_| None).collect();
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
            let server = match kept[at].take() {
                Some(server) => server,
                // A process id is of the first controller.
                None => Server::of(&subject.kind, settings.pid.filter(|_| at == 0), interrupt)?,
            };
            match measure(settings, &server, &title, interrupt, &progress) {
                Ok(run) => runs[at].push(run),
                Err(_) if interrupt.is_set() => {}
                Err(failure) => return Err(failure),
            }
            kept[at] = Some(server).filter(|_| settings.keep);
        }
    }
    Ok(Rounds {
        runs,
        interrupted: interrupt.is_set(),
    })
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
