//! Samples in the OpenMetrics text format, for Prometheus.

use std::fmt;
use std::time::Duration;

use control::histogram::{BOUNDS_US, Histogram};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text as openmetrics,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Count(u64),
    /// A count with a fraction, such as seconds.
    Real(f64),
    Gauge(f64),
    Histogram(Histogram),
}

pub type Labels = Vec<(&'static str, String)>;

/// All samples of one name.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub help: &'static str,
    /// The samples; without a label there is one.
    pub samples: Vec<(Labels, Value)>,
}

/// Returns the exposition of these families, ending with `# EOF`.
pub fn text(families: Vec<Family>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut exposition = String::new();
    openmetrics::encode(&mut exposition, &registry).expect("a string takes everything");
    exposition
}

impl Value {
    fn encode(self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Value::Count(count) => ConstCounter::new(count).encode(encoder),
            Value::Real(count) => ConstCounter::new(count).encode(encoder),
            Value::Gauge(gauge) => ConstGauge::new(gauge).encode(encoder),
            Value::Histogram(histogram) => {
                let bounds = BOUNDS_US
                    .iter()
                    .map(|us| Duration::from_micros(*us).as_secs_f64());
                let bounds = bounds.chain([f64::INFINITY]);
                let counts = histogram.counts().iter().copied();
                let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
                let sum = histogram.sum().as_secs_f64();
                let mut encoder = encoder;
                encoder.encode_histogram::<NoLabelSet>(sum, histogram.count(), &buckets, None)
            }
        }
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let Some((_, first)) = family.samples.first() else {
                continue;
            };
            let kind = match first {
                Value::Count(_) | Value::Real(_) => MetricType::Counter,
                Value::Gauge(_) => MetricType::Gauge,
                Value::Histogram(_) => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in &family.samples {
                if labels.is_empty() {
                    value.encode(metric)?;
                    break;
                }
                value.encode(metric.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

/// Returns the family that describes the program itself.
pub fn info(commit: Option<&str>) -> Family {
    Family {
        name: "auster_build_info",
        help: "The version of auster, and the commit that it was built of",
        samples: vec![(
            vec![
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
                ("commit", commit.unwrap_or_default().to_owned()),
            ],
            Value::Gauge(1.0),
        )],
    }
}

/// Returns durations of one kind. Each histogram has its own `labels`.
pub fn durations(
    name: &'static str,
    help: &'static str,
    of: impl IntoIterator<Item = (Labels, Histogram)>,
) -> Family {
    let samples = of.into_iter();
    let samples = samples.map(|(labels, histogram)| (labels, Value::Histogram(histogram)));
    Family {
        name,
        help,
        samples: samples.collect(),
    }
}

pub fn gauge(name: &'static str, help: &'static str, value: f64) -> Family {
    Family {
        name,
        help,
        samples: vec![(Vec::new(), Value::Gauge(value))],
    }
}

pub fn count(name: &'static str, help: &'static str, value: u64) -> Family {
    Family {
        name,
        help,
        samples: vec![(Vec::new(), Value::Count(value))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposition_is_as_prometheus_reads_it() {
        let two = Family {
            name: "auster_table_misses",
            help: "Packet-ins for which a path was set",
            samples: vec![
                (vec![("dp_id", "1".to_owned())], Value::Count(7)),
                (vec![("dp_id", "2".to_owned())], Value::Count(0)),
            ],
        };
        let nobody = Family {
            name: "auster_flows",
            help: "Entries",
            samples: Vec::new(),
        };
        assert_eq!(
            text(vec![gauge("auster_hosts", "Hosts", 2.5), two, nobody]),
            "# HELP auster_hosts Hosts\n\
             # TYPE auster_hosts gauge\n\
             auster_hosts 2.5\n\
             # HELP auster_table_misses Packet-ins for which a path was set\n\
             # TYPE auster_table_misses counter\n\
             auster_table_misses_total{dp_id=\"1\"} 7\n\
             auster_table_misses_total{dp_id=\"2\"} 0\n\
             # EOF\n"
        );
    }

    #[test]
    fn a_histogram_has_a_bucket_for_each_bound_and_all_beyond() {
        let mut waits = Histogram::default();
        for micros in [50, 300, 20_000_000] {
            waits.handle(Duration::from_micros(micros));
        }
        let told = text(vec![durations(
            "auster_waits_seconds",
            "Waits",
            [(vec![], waits)],
        )]);
        for line in [
            "# TYPE auster_waits_seconds histogram",
            "auster_waits_seconds_sum 20.00035",
            "auster_waits_seconds_count 3",
            "auster_waits_seconds_bucket{le=\"0.0001\"} 1",
            "auster_waits_seconds_bucket{le=\"0.0005\"} 2",
            "auster_waits_seconds_bucket{le=\"10.0\"} 2",
            "auster_waits_seconds_bucket{le=\"+Inf\"} 3",
        ] {
            assert!(told.lines().any(|found| found == line), "{line}: {told}");
        }
    }
}
