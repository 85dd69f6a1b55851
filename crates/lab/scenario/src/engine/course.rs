//! The course of a run, for threads that wait for each other: the moments that have happened, and
//! the probes and streams that have ended.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub struct Course {
    past: Mutex<Past>,
    news: Condvar,
}

#[derive(Default)]
struct Past {
    moments: BTreeSet<String>,
    /// Probes and streams by their ids.
    ended: BTreeSet<String>,
    /// No further moment will happen.
    is_over: bool,
}

/// Marks a probe, a stream or all moments as ended when dropped, however its thread ended.
pub struct Ending<'a> {
    course: &'a Course,
    /// A probe or stream, or all moments.
    id: Option<&'a str>,
}

impl Course {
    pub fn happened(&self, moment: &str) {
        self.change(|past| past.moments.insert(moment.to_string()));
    }

    /// Waits for a moment. Returns false if it will never happen.
    pub fn wait_for_moment(&self, id: &str) -> bool {
        self.wait(|past| past.is_over || past.moments.contains(id));
        self.past().moments.contains(id)
    }

    /// Whether a moment has happened or never will.
    pub fn is_past(&self, moment: &str) -> bool {
        let past = self.past();
        past.is_over || past.moments.contains(moment)
    }

    /// Waits for the end of a probe or stream.
    pub fn wait_for_end(&self, id: &str) {
        self.wait(|past| past.ended.contains(id));
    }

    pub fn moments(&self) -> Ending<'_> {
        Ending {
            course: self,
            id: None,
        }
    }

    pub fn ending<'a>(&'a self, id: &'a str) -> Ending<'a> {
        Ending {
            course: self,
            id: Some(id),
        }
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Past) -> T) {
        change(&mut self.past());
        self.news.notify_all();
    }

    fn wait(&self, is_enough: impl Fn(&Past) -> bool) {
        let past = self.news.wait_while(self.past(), |past| !is_enough(past));
        drop(past);
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.course.change(|past| match self.id {
            Some(id) => past.ended.insert(id.to_string()),
            None => std::mem::replace(&mut past.is_over, true),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_wait_for_moments_and_probes_and_for_none_that_never_comes() {
        let course = Course::default();
        std::thread::scope(|scope| {
            let probe = scope.spawn(|| {
                let _ending = course.ending("found");
                course.wait_for_moment("killed")
            });
            let other = scope.spawn(|| course.wait_for_moment("never"));
            let moments = course.moments();
            course.happened("killed");
            course.wait_for_end("found");
            assert!(course.is_past("killed") && !course.is_past("never"));
            drop(moments);
            assert!(course.is_past("never"));
            assert!(probe.join().unwrap());
            assert!(!other.join().unwrap());
        });
    }
}
