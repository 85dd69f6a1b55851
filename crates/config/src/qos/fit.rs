//! The items that fit together: those of the API beside those of the file.
//!
//! The API accepts no item that does not fit. But a document in a store may have another origin, or
//! the file may have changed since. Such an item is left out, with a reason, and all others stay.

use std::collections::BTreeMap;

use control::qos::check::Problem;
use control::qos::{Meter, Qos};
use openflow::DatapathId;

use super::held::{Put, chooses, contains};
use super::locate::{self, Item, locate};
use super::read::Sources;

/// The API's layer, and the items left out of it.
#[derive(Debug, Default)]
pub struct Fitted {
    pub api: Qos,
    pub meters: BTreeMap<(DatapathId, u32), Meter>,
    pub left_out: Vec<(Item, String)>,
}

/// Rounds in which every item that a problem names is left out.
const ROUNDS_MAX: usize = 8;
/// Checks that look for unfitting items that no problem names. A check takes everything as a whole.
const CHECKS_MAX: usize = 64;

/// Leaves out the items that `check` finds wrong beside `file` and the other items. Ignores
/// problems that `file` has alone. Changes nothing in `file`.
pub fn fit(
    file: &Qos,
    unfit: Option<&'static str>,
    puts: Vec<Put>,
    check: &dyn Fn(&Qos) -> Vec<Problem>,
) -> Fitted {
    let mut fitting = Fitting {
        check,
        known: check(file),
        chosen: file.clone(),
        left_out: BTreeMap::new(),
        checks_left: CHECKS_MAX,
    };
    let (mut meters, mut items) = (BTreeMap::new(), BTreeMap::new());
    for put in puts {
        let item = put.item();
        if let Put::Meter(dpid, id, meter) = put {
            meters.insert((dpid, id), meter);
        } else if contains(file, &item) {
            let why = "the configuration has it too".to_owned();
            fitting.left_out.insert(item, why);
        } else if let Some(why) = unfit.filter(|_| chooses(&item)) {
            fitting.left_out.insert(item, why.to_owned());
        } else {
            items.insert(item, put);
        }
    }
    fitting.choose(items);
    Fitted {
        api: difference(fitting.chosen, file),
        meters,
        left_out: fitting.left_out.into_iter().collect(),
    }
}

struct Fitting<'a> {
    check: &'a dyn Fn(&Qos) -> Vec<Problem>,
    /// The problems of the file alone.
    known: Vec<Problem>,
    /// The file, and the items that fit beside it.
    chosen: Qos,
    left_out: BTreeMap<Item, String>,
    checks_left: usize,
}

impl Fitting<'_> {
    /// Items are in the order of their kinds, so that a service comes before its policies.
    fn choose(&mut self, mut items: BTreeMap<Item, Put>) {
        let mut named = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            let whole = with(&self.chosen, items.values());
            let problems = self.problems(&whole);
            if problems.is_empty() {
                self.chosen = whole;
                items.clear();
                break;
            }
            let before = items.len();
            for problem in &problems {
                let about = locate::about(&whole, problem);
                if let Some((item, put)) = about.and_then(|item| items.remove_entry(&item)) {
                    named.insert(item, put);
                }
            }
            if items.len() == before {
                break;
            }
        }
        // An item named by a problem may fit once others are left out.
        items.append(&mut named);
        self.halve(&items.into_iter().collect::<Vec<_>>());
    }

    /// Takes all items of a part, or searches its halves for those that do not fit.
    fn halve(&mut self, part: &[(Item, Put)]) {
        if part.is_empty() {
            return;
        }
        let whole = with(&self.chosen, part.iter().map(|(_, put)| put));
        let problems = match self.checks_left.checked_sub(1) {
            Some(left) => {
                self.checks_left = left;
                self.problems(&whole)
            }
            None => {
                let why = "too many others do not fit";
                let out = part.iter().map(|(item, _)| (item.clone(), why.to_owned()));
                return self.left_out.extend(out);
            }
        };
        if problems.is_empty() {
            self.chosen = whole;
            return;
        }
        if let [(item, _)] = part {
            let of_it = |problem: &&Problem| locate::about(&whole, problem).as_ref() == Some(item);
            let problem = problems.iter().find(of_it).or(problems.first());
            let why = problem.map(|problem| locate(&whole, problem, &Sources::default()).text);
            self.left_out.insert(item.clone(), why.unwrap_or_default());
            return;
        }
        let (first, second) = part.split_at(part.len() / 2);
        self.halve(first);
        self.halve(second);
    }

    fn problems(&self, whole: &Qos) -> Vec<Problem> {
        let mut problems = (self.check)(whole);
        problems.retain(|problem| !self.known.contains(problem));
        problems
    }
}

fn with<'p>(qos: &Qos, puts: impl Iterator<Item = &'p Put>) -> Qos {
    let mut whole = qos.clone();
    for put in puts {
        // No two have the same name.
        match put.clone() {
            Put::Port(at, port) => drop(whole.ports.insert(at, port)),
            Put::Service(service) => whole.services.push(service),
            Put::Policy(policy) => whole.policies.push(policy),
            Put::Circuit(circuit) => whole.circuits.push(circuit),
            Put::Meter(..) | Put::Part(..) | Put::Flow(..) | Put::Layout(_) => {}
        }
    }
    whole
}

/// The items of `whole` after those of `file`, with which it begins.
fn difference(mut whole: Qos, file: &Qos) -> Qos {
    whole.ports.retain(|at, _| !file.ports.contains_key(at));
    whole.services.drain(..file.services.len());
    whole.policies.drain(..file.policies.len());
    whole.circuits.drain(..file.circuits.len());
    whole
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use control::qos::{Network, Policy, Service, Treatment};
    use proptest::prelude::*;

    use super::*;

    fn service(name: &str) -> Put {
        Put::Service(Service {
            name: name.to_owned(),
            ..Service::default()
        })
    }

    fn policy(name: &str, service: &str, priority: u16) -> Put {
        Put::Policy(Policy {
            name: name.to_owned(),
            service: service.to_owned(),
            priority,
            treatment: Treatment {
                drop: true,
                ..Treatment::default()
            },
            on: control::qos::On::Everywhere,
        })
    }

    fn check(qos: &Qos) -> Vec<Problem> {
        qos.check(&Network::default())
    }

    fn names(fitted: &Fitted) -> Vec<String> {
        let left_out = fitted.left_out.iter();
        left_out.map(|(item, _)| item.to_string()).collect()
    }

    #[test]
    fn one_that_does_not_fit_takes_no_other_with_it() {
        let file = with(&Qos::default(), [service("dns")].iter());
        let puts = vec![
            policy("of-nothing", "nowhere", 1),
            policy("first", "voice", 2),
            service("voice"),
            service("dns"),
            policy("too-high", "voice", 10_000),
        ];
        let fitted = fit(&file, None, puts.clone(), &check);
        assert_eq!(
            names(&fitted),
            ["service 'dns'", "policy 'of-nothing'", "policy 'too-high'"]
        );
        let whys: Vec<&str> = fitted
            .left_out
            .iter()
            .map(|(_, why)| why.as_str())
            .collect();
        assert!(whys[0].contains("the configuration has it too"), "{whys:?}");
        assert!(
            whys[1].contains("there is no service 'nowhere'"),
            "{whys:?}"
        );
        assert_eq!(
            (fitted.api.services.len(), fitted.api.policies.len()),
            (1, 1)
        );
        // Nothing in it chooses packets beside VLANs.
        let fitted = fit(&file, Some("there are VLANs"), puts, &check);
        assert_eq!((fitted.api, fitted.left_out.len()), (Qos::default(), 5));
    }

    #[test]
    fn what_is_wrong_with_the_file_alone_leaves_nothing_out() {
        let file = with(&Qos::default(), [policy("of-nothing", "nowhere", 1)].iter());
        assert!(!check(&file).is_empty());
        let fitted = fit(&file, None, vec![service("voice")], &check);
        assert_eq!(fitted.left_out, []);
        assert_eq!(fitted.api.services.len(), 1);
    }

    #[test]
    fn a_flood_of_what_does_not_fit_ends() {
        let puts = (0..2000).map(|n| policy(&format!("p{n}"), &format!("s{n}"), 1));
        let puts: Vec<Put> = puts.chain([service("voice")]).collect();
        let checks = std::cell::Cell::new(0);
        let counted = |qos: &Qos| {
            checks.set(checks.get() + 1);
            check(qos)
        };
        let fitted = fit(&Qos::default(), None, puts, &counted);
        assert_eq!(fitted.api.services.len(), 1, "{} checks", checks.get());
        assert_eq!(fitted.left_out.len(), 2000);
        assert!(
            checks.get() <= CHECKS_MAX + ROUNDS_MAX + 2,
            "{}",
            checks.get()
        );
    }

    proptest! {
        /// For any input, the chosen items have no problem, each item left out has a reason and
        /// does not fit beside the rest, and no item is lost.
        #[test]
        fn the_choice_has_no_problem_and_leaves_nothing_out_for_nothing(
            of_file in proptest::collection::btree_set(0..6_u8, 0..4),
            services in proptest::collection::btree_set(0..6_u8, 0..6),
            policies in proptest::collection::btree_map(0..6_u8, (0..6_u8, 0..3_u16), 0..6),
        ) {
            let of_file: Vec<Put> = of_file.iter().map(|n| service(&format!("s{n}"))).collect();
            let file = with(&Qos::default(), of_file.iter());
            let services = services.iter().map(|n| service(&format!("s{n}")));
            let policies = policies.iter().map(|(n, (of, priority))| {
                policy(&format!("p{n}"), &format!("s{of}"), *priority)
            });
            let puts: Vec<Put> = policies.chain(services).collect();
            let fitted = fit(&file, None, puts.clone(), &check);
            let whole = |extra: &[Put]| {
                let mut whole = with(&file, extra.iter());
                whole.services.extend(fitted.api.services.iter().cloned());
                whole.policies.extend(fitted.api.policies.iter().cloned());
                whole
            };
            prop_assert_eq!(check(&whole(&[])), []);
            let left_out: BTreeSet<Item> =
                fitted.left_out.iter().map(|(item, _)| item.clone()).collect();
            for put in &puts {
                let is_chosen = contains(&fitted.api, &put.item());
                prop_assert_ne!(is_chosen, left_out.contains(&put.item()));
                if !is_chosen {
                    prop_assert!(!check(&whole(std::slice::from_ref(put))).is_empty());
                }
            }
            prop_assert!(fitted.left_out.iter().all(|(_, why)| !why.is_empty()));
        }
    }
}
