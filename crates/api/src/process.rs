//! Figures of this process, under the names that Prometheus' own clients use.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};

use super::exposition::{Family, Value, count, gauge};
use cli::{limits, output};

/// The unit of times in `/proc`, on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// The system's figures of this process, as far as there is a `/proc`, and the lines not written.
pub fn families() -> Vec<Family> {
    let mut families = of_output();
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let seconds = [usage.user_time(), usage.system_time()].map(|time| {
            let micros = u64::try_from(time.tv_usec()).unwrap_or_default();
            let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
            Duration::from_secs(seconds) + Duration::from_micros(micros)
        });
        let seconds = seconds.iter().sum::<Duration>().as_secs_f64();
        families.push(Family {
            name: "process_cpu_seconds",
            help: "Processor time of this process",
            samples: vec![(Vec::new(), Value::Real(seconds))],
        });
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = [
        (
            "VmSize:",
            "process_virtual_memory_bytes",
            "Memory that was mapped",
        ),
        ("VmRSS:", "process_resident_memory_bytes", "Memory in use"),
    ];
    for (line, name, help) in memory {
        let size = status.lines().find_map(|found| found.strip_prefix(line));
        let size = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        families.extend(size.map(|kib| gauge(name, help, (kib * 1024) as f64)));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The open folder itself is one of them.
        let count = open.count().saturating_sub(1);
        families.push(gauge("process_open_fds", "Open files", count as f64));
    }
    if let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        families.push(gauge(
            "process_max_fds",
            "Files that may be open",
            most as f64,
        ));
    }
    families.extend(started().map(|at| {
        let help = "The start of this process, in seconds since 1970";
        gauge("process_start_time_seconds", help, at)
    }));
    families
}

fn of_output() -> Vec<Family> {
    let streams = ["stdout", "stderr"].into_iter().zip(output::dropped());
    let sample =
        |(stream, count): (&str, u64)| (vec![("stream", stream.to_owned())], Value::Count(count));
    let unread = Family {
        name: "auster_log_lines_dropped",
        help: "Lines that were not written because nobody read them in time",
        samples: streams.map(sample).collect(),
    };
    let help = "Lines that were not written because there were too many of their kind";
    let left_out = count("auster_log_lines_left_out", help, limits::left_out());
    vec![unread, left_out]
}

fn started() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The process name before may contain spaces and brackets.
    let ticks: f64 = stat.rsplit(") ").next()?.split(' ').nth(19)?.parse().ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.as_secs_f64() - uptime + ticks / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let families = families();
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name == name);
            match family.map(|family| family.samples[0].1) {
                Some(Value::Gauge(value) | Value::Real(value)) => value,
                other => panic!("{name}: {other:?}"),
            }
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - value("process_start_time_seconds");
        assert!((-2.0..86_400.0).contains(&age), "{age}");
    }
}
