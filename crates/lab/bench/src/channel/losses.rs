//! The conditions where QUIC loses, computed so that none is overlooked.

use serde::Serialize;

use super::cell::CellResult;
use super::method::Method;
use super::report::Figures;

/// The baselines of every method: a connection per agent and TCP_NODELAY, as Open vSwitch does it.
const BASELINES: [&str; 2] = ["tcp", "tls"];

/// One figure of a QUIC method that is worse than that of a baseline under the same condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    pub table: super::grid::Table,
    pub condition: String,
    pub measure: &'static str,
    pub method: &'static str,
    pub against: &'static str,
    pub figure: f64,
    pub baseline: f64,
}

/// A measure, how to read it, and by what factor and amount a figure may be above the baseline's
/// before it is called worse: bytes are counted, delays have the machine's noise.
type Measure = (&'static str, fn(&Figures) -> f64, f64, f64);

const MEASURES: [Measure; 4] = [
    ("overhead (B/message)", |f| f.overhead_bytes, 1.01, 0.0),
    ("mean delay (ms)", |f| f.mean_ms, 1.02, 0.05),
    ("p99 delay (ms)", |f| f.p99_ms, 1.05, 0.5),
    ("undelivered (%)", |f| f.undelivered_percent, 1.0, 0.0),
];

/// All losses, condition by condition.
pub fn of(results: &[CellResult]) -> Vec<Loss> {
    let all = Figures::of(results);
    let mut losses = Vec::new();
    for baseline in all.iter().filter(|f| BASELINES.contains(&f.method.name)) {
        let rivals = all.iter().filter(|rival| {
            rival.method.is_quic() && rival.is_under_the_same_condition_as(baseline)
        });
        for rival in rivals {
            for (measure, read, factor, amount) in MEASURES {
                let (figure, bound) = (read(rival), read(baseline));
                if figure > bound * factor && figure > bound + amount {
                    losses.push(Loss {
                        table: rival.table,
                        condition: rival.condition.clone(),
                        measure,
                        method: rival.method.name,
                        against: baseline.method.name,
                        figure,
                        baseline: bound,
                    });
                }
            }
        }
    }
    losses
}

/// A line per condition, measure and baseline.
pub fn say(losses: &[Loss], results: &[CellResult]) -> String {
    let compared = |name: &str| results.iter().any(|result| result.method == name);
    let quic = |result: &CellResult| Method::parse(result.method).is_ok_and(Method::is_quic);
    if !BASELINES.iter().any(|name| compared(name)) || !results.iter().any(quic) {
        return String::new();
    }
    if losses.is_empty() {
        return "QUIC loses: nothing, against tcp and tls in the same run.\n".to_owned();
    }
    let mut text = "QUIC loses, against tcp and tls in the same run:\n".to_owned();
    let mut groups: Vec<Vec<&Loss>> = Vec::new();
    for loss in losses {
        let key = |loss: &Loss| {
            (
                loss.table,
                loss.condition.clone(),
                loss.measure,
                loss.against,
            )
        };
        match groups.iter_mut().find(|group| key(group[0]) == key(loss)) {
            Some(group) => group.push(loss),
            None => groups.push(vec![loss]),
        }
    }
    for group in groups {
        let words: Vec<String> = group.iter().map(|loss| loss.words()).collect();
        let Loss {
            condition,
            measure,
            against,
            baseline,
            ..
        } = group[0];
        let words = words.join(", ");
        text += &format!("  {condition}: {measure}, {against} {baseline:.1}: {words}\n");
    }
    text
}

impl Loss {
    fn words(&self) -> String {
        let more = match self.baseline {
            0.0 => String::new(),
            baseline => format!(" (+{:.0} %)", (self.figure / baseline - 1.0) * 100.0),
        };
        format!("{} {:.1}{more}", self.method, self.figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::cell::tests::result;

    #[test]
    fn what_is_worse_by_more_than_noise_is_a_loss_and_nothing_else() {
        let tcp = result("tcp", 1.0, 1);
        let mut quic = result("quic-2s", 1.0, 1);
        let mut relay = result("relay", 1.0, 1);
        quic.overhead_bytes_per_message = tcp.overhead_bytes_per_message * 1.2;
        quic.delay_ms.p99 = tcp.delay_ms.p99 * 1.01;
        relay.delay_ms.mean = tcp.delay_ms.mean * 0.9;
        relay.undelivered = 3;
        // Under another condition nothing is compared.
        let mut elsewhere = result("quic-msg", 5.0, 1);
        elsewhere.delay_ms.mean *= 100.0;
        let results = [tcp, quic, relay, elsewhere];
        let losses = of(&results);
        let found: Vec<(&str, &str)> = losses.iter().map(|l| (l.method, l.measure)).collect();
        assert_eq!(
            found,
            [
                ("quic-2s", "overhead (B/message)"),
                ("relay", "undelivered (%)")
            ]
        );
        let said = say(&losses, &results);
        assert!(said.contains("tcp 88.0: quic-2s 105.6 (+20 %)"), "{said}");
    }

    #[test]
    fn nothing_lost_is_said_and_nothing_compared_is_not() {
        let same = [result("tcp", 1.0, 1), result("relay", 1.0, 1)];
        assert!(say(&of(&same), &same).contains("nothing"));
        assert_eq!(say(&[], &same[..1]), "");
        assert_eq!(
            say(&[], &[result("tcp-nagle", 1.0, 1), result("relay", 1.0, 1)]),
            ""
        );
    }
}
