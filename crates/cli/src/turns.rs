//! Priorities of a program's threads: short turns on a processor for threads that forward messages,
//! and a lower priority for threads that serve people and programs.
//!
//! Linux lets a waking thread wait until another has had its slice, some 3 ms with few cores: more
//! than a message should take in all. Since 6.12 (EEVDF with a slice for each thread) a thread may
//! ask for a shorter slice. When it wakes, it then runs before threads that asked for more; its
//! share of the processor stays the same. This needs no privilege.
#![allow(unsafe_code)] // The call has no wrapper.

use std::time::Duration;

use nix::libc;

/// The shortest slice that the kernel grants.
const TURN: Duration = Duration::from_micros(100);

/// Asks for short turns, for this thread and those that it starts. Nothing changes where the kernel
/// cannot do it, or where another scheduling class was chosen.
pub fn ask_for_short_turns() {
    // SAFETY: the priority of the calling thread is read.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: a structure of plain numbers, for which zeros are values.
    let mut wanted: libc::sched_attr = unsafe { std::mem::zeroed() };
    wanted.size = size_of::<libc::sched_attr>() as u32;
    wanted.sched_policy = libc::SCHED_OTHER as u32;
    wanted.sched_flags = libc::SCHED_FLAG_KEEP_POLICY as u64;
    wanted.sched_nice = nice;
    wanted.sched_runtime = TURN.as_nanos() as u64;
    // SAFETY: the kernel reads one `sched_attr` of the size that it says, and keeps no pointer.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    if done != 0 {
        let error = std::io::Error::last_os_error();
        tracing::debug!(%error, "no short turns");
    }
}

/// The difference of nice values: at 10, a thread has a tenth of another thread's time when both
/// want a processor.
const BEHIND: libc::c_int = 10;

/// Puts this thread behind the others of the program. Threads that it starts are behind them too.
/// The thread may be delayed while it holds a lock, so it locks data shared with others for a few
/// steps only.
pub fn go_behind() {
    // SAFETY: the priority of the calling thread is read, and set.
    let done = unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, nice.saturating_add(BEHIND))
    };
    if done != 0 {
        let error = std::io::Error::last_os_error();
        tracing::debug!(%error, "no lower priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_started_after_it_have_the_slice_and_the_nice_value_stays() {
        std::thread::spawn(|| {
            ask_for_short_turns();
            let (slice, nice) = std::thread::spawn(mine).join().unwrap();
            let release = nix::sys::utsname::uname().unwrap();
            let release = release.release().to_string_lossy().into_owned();
            let mut numbers = release
                .split('.')
                .map_while(|part| part.parse::<u32>().ok());
            if (numbers.next(), numbers.next()) >= (Some(6), Some(12)) {
                assert_eq!(slice, 100_000, "on {release}");
            }
            assert_eq!(nice, mine().1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_goes_behind_leaves_the_others_where_they_are() {
        let before = mine().1;
        let behind = std::thread::spawn(|| {
            go_behind();
            mine().1
        });
        assert_eq!(behind.join().unwrap(), (before + BEHIND).min(19));
        assert_eq!(mine().1, before);
    }

    fn mine() -> (u64, i32) {
        // SAFETY: zeros are values of these numbers.
        let mut is: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = size_of_val(&is);
        // SAFETY: the kernel writes at most `size` bytes, which `is` has.
        let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut is, size, 0) };
        assert_eq!(done, 0);
        (is.sched_runtime, is.sched_nice)
    }
}
