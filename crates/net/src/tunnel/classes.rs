//! The classes that a policy map tells the network of: one code point, one connection.

use sched::PolicyMap;
use sched::policy::Action;

/// Connections of one session. A network tells two or three classes apart, eight at most.
pub const CLASSES_MAX: usize = 8;

/// The code points that `map` gives to control messages, the greatest first; none if it marks
/// nothing. What copies a packet's code point is carried with the nearest class below.
pub fn code_points(map: &PolicyMap) -> Vec<u8> {
    let rules = map.rules.iter();
    let control = rules.filter(|rule| rule.traffic != Some(sched::TrafficType::Data));
    let actions = control.map(|rule| rule.action).chain([map.default]);
    let mut points: Vec<u8> = actions
        .filter_map(|action| match action {
            Action::Dscp(dscp) | Action::Both(_, dscp) => Some(dscp),
            Action::DscpCopy => Some(0),
            Action::Queue(_) => None,
        })
        .collect();
    points.sort_unstable_by(|a, b| b.cmp(a));
    points.dedup();
    points.truncate(CLASSES_MAX);
    points
}
