//! Claims that the relay pair is better than TCP and TLS, checked against figures of the same run.

use serde::Serialize;

use super::cell::CellResult;
use super::grid::{AGENTS, Table};
use super::report::Figures;

/// A connection per agent and TCP_NODELAY, as Open vSwitch does it.
const BASELINES: [&str; 2] = ["tcp", "tls"];

/// The factor by which two runs of the same cell may differ in bytes.
const AGENTS_NOISE: f64 = 1.02;

/// One claim under one condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    pub table: Table,
    pub condition: String,
    pub agents: usize,
    pub claim: String,
    /// The figure that must not be above the bound.
    pub figure: f64,
    pub bound: f64,
    pub holds: bool,
}

/// All claims that the figures allow to be judged, condition by condition.
pub fn of(results: &[CellResult]) -> Vec<Claim> {
    let all = Figures::of(results);
    let mut claims = Vec::new();
    let mut seen: Vec<&Figures> = Vec::new();
    for figures in &all {
        if seen
            .iter()
            .any(|f| f.is_under_the_same_condition_as(figures))
        {
            continue;
        }
        seen.push(figures);
        let same = all
            .iter()
            .filter(|f| f.is_under_the_same_condition_as(figures));
        let cell = Cell(same.collect());
        let mut found = Vec::new();
        match figures.table {
            Table::ClaimsOverhead => {
                cell.overhead(&mut found);
                let of_two = all.iter().filter(|f| {
                    (f.table, &f.condition, f.group.agents)
                        == (figures.table, &figures.condition, AGENTS)
                });
                cell.more_agents(&mut found, &Cell(of_two.collect()));
            }
            Table::ClaimsDelay => cell.delay(&mut found),
            Table::ClaimsNeverWorse => cell.never_worse(&mut found),
            _ => {}
        }
        claims.extend(found);
    }
    claims
}

/// A line for each, and how many hold.
pub fn say(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let held = claims.iter().filter(|claim| claim.holds).count();
    let mut text = format!("Claims: {held} of {} hold.\n", claims.len());
    for claim in claims {
        let verdict = if claim.holds { "holds" } else { "FAILS" };
        let Claim {
            condition,
            agents,
            claim,
            figure,
            bound,
            ..
        } = claim;
        text += &format!(
            "  {verdict}  {condition}, {agents} agents: {claim}: {figure:.3}, at most {bound:.3}\n"
        );
    }
    text
}

/// The figures of all methods under one condition.
struct Cell<'a>(Vec<&'a Figures>);

impl Cell<'_> {
    fn of(&self, method: &str) -> Option<&Figures> {
        self.0.iter().find(|f| f.method.name == method).copied()
    }

    fn claim(&self, found: &mut Vec<Claim>, claim: String, figure: f64, bound: f64) {
        let first = self.0[0];
        found.push(Claim {
            table: first.table,
            condition: first.condition.clone(),
            agents: first.group.agents,
            claim,
            figure,
            bound,
            holds: figure <= bound,
        });
    }

    /// Claims that `method` has at most the share `bound` of the figure of `baseline`.
    fn ratio(
        &self,
        found: &mut Vec<Claim>,
        (what, read): (&str, fn(&Figures) -> f64),
        (method, baseline): (&str, &str),
        bound: f64,
    ) {
        if let (Some(ours), Some(theirs)) = (self.of(method), self.of(baseline)) {
            let claim = format!("{what} of {method} over that of {baseline}");
            self.claim(found, claim, read(ours) / read(theirs), bound);
        }
    }

    /// At 1,000/s at least 50 % below TCP and 60 % below TLS for at most 1 ms more delay, at
    /// 10,000/s at least 80 % below both.
    fn overhead(&self, found: &mut Vec<Claim>) {
        let parts = match self.0[0].rate_per_s {
            1000.0 => [0.5, 0.4],
            10_000.0 => [0.2, 0.2],
            _ => return,
        };
        for method in ["relay-1.2ms", "relay-5ms"] {
            for (baseline, part) in BASELINES.into_iter().zip(parts) {
                let overhead: (&str, fn(&Figures) -> f64) = ("overhead", |f| f.overhead_bytes);
                self.ratio(found, overhead, (method, baseline), part);
            }
            if let (Some(ours), Some(without)) = (self.of(method), self.of("relay"))
                && method == "relay-1.2ms"
            {
                let claim = format!("mean delay that {method} adds to relay's, ms");
                self.claim(found, claim, ours.mean_ms - without.mean_ms, 1.0);
            }
        }
    }

    /// Claims that more agents than two do not save less.
    fn more_agents(&self, found: &mut Vec<Claim>, of_two: &Cell) {
        if self.0[0].group.agents <= AGENTS {
            return;
        }
        let ratio = |cell: &Cell, baseline| {
            let (ours, theirs) = (cell.of("relay-5ms")?, cell.of(baseline)?);
            Some(ours.overhead_bytes / theirs.overhead_bytes)
        };
        for baseline in BASELINES {
            if let (Some(now), Some(before)) = (ratio(self, baseline), ratio(of_two, baseline)) {
                let claim =
                    format!("overhead of relay-5ms over that of {baseline}, as with {AGENTS}");
                self.claim(found, claim, now, before * AGENTS_NOISE);
            }
        }
    }

    /// Long path, 5 %: mean at least 35 % and p99 at least 40 % below TCP and TLS, with duplicates
    /// p99 at least 80 % below, but for bursts, which take a message and its copy. Short path, 5 %:
    /// p99 at most 5 ms, in bursts at least 40 % below.
    fn delay(&self, found: &mut Vec<Claim>) {
        if self.0[0].loss_percent != 5.0 {
            return;
        }
        let is_in_bursts = self.0[0].is_in_bursts;
        if self.0[0].is_short_path && !is_in_bursts {
            for method in ["relay", "relay-dup"] {
                if let Some(ours) = self.of(method) {
                    self.claim(found, format!("p99 of {method}, ms"), ours.p99_ms, 5.0);
                }
            }
            return;
        }
        for baseline in BASELINES {
            let mean: (&str, fn(&Figures) -> f64) = ("mean delay", |f| f.mean_ms);
            let p99: (&str, fn(&Figures) -> f64) = ("p99", |f| f.p99_ms);
            self.ratio(found, mean, ("relay", baseline), 0.65);
            self.ratio(found, p99, ("relay", baseline), 0.6);
            if !is_in_bursts {
                self.ratio(found, p99, ("relay-dup", baseline), 0.2);
            }
        }
    }

    /// Mean delay at most 5 % above the better of TCP and TLS, and everything delivered.
    fn never_worse(&self, found: &mut Vec<Claim>) {
        let Some(ours) = self.of("relay") else { return };
        let baselines = BASELINES.into_iter().filter_map(|name| self.of(name));
        if let Some(best) = baselines.min_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms)) {
            let claim = format!("mean delay of relay over that of {}", best.method.name);
            self.claim(found, claim, ours.mean_ms / best.mean_ms, 1.05);
        }
        let claim = "undelivered of relay, %".to_owned();
        self.claim(found, claim, ours.undelivered_percent, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::cell::tests::result;

    fn at(table: Table, method: &'static str, rate_per_s: f64, loss: f64) -> CellResult {
        CellResult {
            table,
            rate_per_s,
            ..result(method, loss, 1)
        }
    }

    fn verdicts(claims: &[Claim]) -> Vec<(String, bool)> {
        let verdict = |claim: &Claim| (claim.claim.clone(), claim.holds);
        claims.iter().map(verdict).collect()
    }

    #[test]
    fn overhead_is_held_to_tcp_and_tls_of_the_same_rate() {
        let of = |method, rate, overhead| CellResult {
            overhead_bytes_per_message: overhead,
            ..at(Table::ClaimsOverhead, method, rate, 1.0)
        };
        let results = [
            of("tcp", 1000.0, 88.0),
            of("tls", 1000.0, 100.0),
            of("relay-1.2ms", 1000.0, 43.0),
            // At another rate it is another claim.
            of("tcp", 10_000.0, 100.0),
            of("relay-1.2ms", 10_000.0, 21.0),
        ];
        let claims = super::of(&results);
        let expected = [
            ("overhead of relay-1.2ms over that of tcp", true),
            ("overhead of relay-1.2ms over that of tls", false),
            ("overhead of relay-1.2ms over that of tcp", false),
        ];
        let expected = expected.map(|(claim, holds)| (claim.to_owned(), holds));
        assert_eq!(verdicts(&claims), expected);
        assert!(say(&claims).contains("1 of 3 hold"), "{}", say(&claims));
    }

    #[test]
    fn more_agents_are_held_to_two_of_the_same_rate() {
        let of = |method, agents, overhead| CellResult {
            agents,
            overhead_bytes_per_message: overhead,
            ..at(Table::ClaimsOverhead, method, 1000.0, 1.0)
        };
        let results = [
            of("tcp", 2, 90.0),
            of("relay-5ms", 2, 18.0),
            of("tcp", 8, 100.0),
            of("relay-5ms", 8, 21.0),
            of("tcp", 16, 110.0),
            of("relay-5ms", 16, 21.0),
        ];
        let grown = |claim: &&Claim| claim.claim.ends_with("as with 2");
        let claims = super::of(&results);
        let found: Vec<(usize, bool)> = claims
            .iter()
            .filter(grown)
            .map(|claim| (claim.agents, claim.holds))
            .collect();
        assert_eq!(found, [(8, false), (16, true)]);
    }

    #[test]
    fn in_bursts_duplicates_claim_nothing_and_the_rest_is_the_same() {
        let of = |method, p99, rtt_ms| {
            let mut result = at(Table::ClaimsDelay, method, 100.0, 5.0);
            (result.burst_frames, result.rtt_ms) = (4.0, rtt_ms);
            (result.delay_ms.mean, result.delay_ms.p99) = (p99 / 2.0, p99);
            result
        };
        for rtt_ms in [100.0, 0.32] {
            let results = [
                of("tcp", 400.0, rtt_ms),
                of("relay", 230.0, rtt_ms),
                of("relay-dup", 390.0, rtt_ms),
            ];
            let expected = [
                ("mean delay of relay over that of tcp".to_owned(), true),
                ("p99 of relay over that of tcp".to_owned(), true),
            ];
            assert_eq!(verdicts(&super::of(&results)), expected, "{rtt_ms}");
        }
    }

    #[test]
    fn the_default_is_held_to_the_better_of_both_and_to_delivering_all() {
        let table = Table::ClaimsNeverWorse;
        let (tcp, mut tls) = (at(table, "tcp", 100.0, 1.0), at(table, "tls", 100.0, 1.0));
        tls.delay_ms.mean = tcp.delay_ms.mean * 0.9;
        let mut relay = at(table, "relay", 100.0, 1.0);
        relay.delay_ms.mean = tcp.delay_ms.mean * 0.96;
        relay.undelivered = 1;
        let claims = super::of(&[tcp, tls, relay]);
        assert!(
            claims[0].claim.ends_with("tls") && !claims[0].holds,
            "{claims:?}"
        );
        assert!(!claims[1].holds, "{claims:?}");
    }

    #[test]
    fn other_tables_claim_nothing() {
        let results = [result("tcp", 5.0, 1), result("relay", 5.0, 1)];
        assert_eq!(super::of(&results), []);
        assert_eq!(say(&[]), "");
    }
}
