//! The time that cores and processes were busy, as Linux counts it.

/// USER_HZ: the unit of times in /proc.
pub const TICKS_PER_S: f64 = 100.0;

/// The last core, away from the kernel's work, which is on the first core.
pub fn last_core() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) - 1
}

/// The number of ticks that the core was not idle since the machine started.
pub fn core_ticks(core: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_ticks(&text, core)
}

fn busy_ticks(stat: &str, core: usize) -> u64 {
    /// Fields of a core: idle, and waiting for a disk.
    const IDLE: [usize; 2] = [3, 4];
    let name = format!("cpu{core} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name));
    let fields = line
        .unwrap_or_default()
        .split_whitespace()
        .take(8)
        .enumerate();
    let busy = fields.filter(|(place, _)| !IDLE.contains(place));
    busy.filter_map(|(_, ticks)| ticks.parse::<u64>().ok())
        .sum()
}

/// The number of ticks that a process has run, in all its threads.
pub fn process_ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    run_ticks(&text)
}

fn run_ticks(stat: &str) -> u64 {
    // The name may have spaces and brackets in it; the fields after it begin with the state.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let user_and_system = after.split_whitespace().skip(11).take(2);
    user_and_system
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        let stat = "cpu  9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 10 0 5 100 0 0 1 0 0 0\n";
        assert_eq!(
            (
                busy_ticks(stat, 0),
                busy_ticks(stat, 1),
                busy_ticks(stat, 2)
            ),
            (27, 16, 0)
        );
        let of = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 250 31 0 0 20 0 5 0";
        assert_eq!((run_ticks(of), run_ticks("")), (281, 0));
    }
}
