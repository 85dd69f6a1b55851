//! Ctrl-C and SIGTERM for programs with a runtime, which can check for them and wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::failure::Failure;

/// The exit code with which a shell reports a process that Ctrl-C ended.
const EXIT_TWICE_INTERRUPTED: i32 = 130;

/// The first SIGINT, SIGTERM or SIGHUP: the bench ends in order, with the figures so far. The
/// second one ends the process at once.
///
/// It installs handlers instead of the mask of `signals`: a process that a bench starts (a second
/// controller) would inherit the mask, and these signals could not stop it.
#[derive(Clone)]
pub struct Interrupt {
    is_set: Arc<AtomicBool>,
    set: watch::Receiver<bool>,
}

impl Interrupt {
    pub fn take() -> Result<Interrupt, Failure> {
        let failed = |e: std::io::Error| Failure::machine(format!("signals: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(failed)?;
        let guard = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
        drop(guard);
        let (sender, set) = watch::channel(false);
        let is_set = Arc::new(AtomicBool::new(false));
        let flag = is_set.clone();
        let mut next = async move || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        };
        let watch = move || {
            runtime.block_on(async {
                next().await;
                flag.store(true, Ordering::SeqCst);
                sender.send_replace(true);
                next().await;
                crate::output::flush();
                std::process::exit(EXIT_TWICE_INTERRUPTED)
            })
        };
        std::thread::Builder::new()
            .name("interrupt".to_string())
            .spawn(watch)
            .map_err(failed)?;
        Ok(Interrupt { is_set, set })
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Waits for the first signal; returns at once if it has already arrived.
    pub async fn wait(&self) {
        // The sender lives as long as the process.
        let _ = self.set.clone().wait_for(|is_set| *is_set).await;
    }
}
