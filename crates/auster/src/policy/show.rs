//! A map in full, for people and as JSON.

use openflow::{MessageKind, Version};
use sched::policy::{Profile, QueueConfig, field_name, field_text};
use sched::{Direction, PolicyMap, TrafficType, traffic_of};
use serde_json::{Value, json};

use crate::ofp;
use cli::failure::Failure;

pub fn show(argument: &str, as_json: bool) -> Result<(), Failure> {
    let map = config::policy::load(argument)?;
    let text = if as_json {
        serde_json::to_string_pretty(&document(&map)).map_err(Failure::negative)?
    } else {
        in_words(&map)
    };
    ofp::write_line(&mut std::io::stdout().lock(), &text)
}

/// The canonical text, which can be used as a file, and remarks.
fn in_words(map: &PolicyMap) -> String {
    let mut lines = vec![map.to_text().trim_end().to_owned()];
    lines.push(format!("# sha256 {}", map.digest()));
    lines.push("\n# Traffic type of every message, and its number in each version".to_owned());
    lines.push("# type  message                    1.0 1.1 1.2 1.3 1.4 1.5".to_owned());
    for kind in kinds(map.profile) {
        let traffic = traffic_of(kind, map.profile) as u8;
        let numbers: String = Version::ALL
            .iter()
            .map(|version| match kind.to_wire(version.wire()) {
                Some(number) => format!("{number:>4}"),
                None => "   -".to_owned(),
            })
            .collect();
        lines.push(format!("# {traffic:>4}  {:<25}{numbers}", kind.name()));
    }
    if map.profile == Profile::Auster {
        lines.push("# A port_status that tells of a lost link is of type 1.".to_owned());
        lines.push("# A bundle_add_message is of the type of the message in it.".to_owned());
    }
    lines.join("\n")
}

/// The kinds of messages, by traffic type, then by number.
fn kinds(profile: Profile) -> Vec<MessageKind> {
    let mut kinds: Vec<MessageKind> = MessageKind::all().collect();
    kinds.sort_by_key(|kind| traffic_of(*kind, profile));
    kinds
}

fn document(map: &PolicyMap) -> Value {
    let rules = map.rules.iter().map(|rule| {
        let fields = rule.fields.fields.iter().filter_map(|field| match field {
            openflow::MatchField::Basic { field, value, mask } => Some((
                field_name(*field).to_owned(),
                Value::from(field_text(*field, *value, *mask)),
            )),
            openflow::MatchField::Other { .. } => None,
        });
        let direction = rule.direction.map(|direction| match direction {
            Direction::ToController => "up",
            Direction::ToSwitch => "down",
        });
        json!({
            "id": rule.id,
            "traffic_type": rule.traffic.map(|traffic| traffic as u8),
            "msg": rule.message.map(MessageKind::name),
            "dir": direction,
            "dpid": rule.datapath.map(|id| id.to_string()),
            "fields": fields.collect::<serde_json::Map<_, _>>(),
            "xid": rule.xid.map(|(value, mask)| format!("{value:#x}/{mask:#x}")),
            "domain": rule.domain,
            "action": rule.action.to_string(),
        })
    });
    let queues = map.scheduling.queues.iter().enumerate();
    let types = kinds(map.profile).into_iter().map(|kind| {
        let numbers = Version::ALL.iter().filter_map(|version| {
            let number = kind.to_wire(version.wire())?;
            Some((version.to_string(), Value::from(number)))
        });
        json!({
            "message": kind.name(),
            "traffic_type": traffic_of(kind, map.profile) as u8,
            "numbers": numbers.collect::<serde_json::Map<_, _>>(),
        })
    });
    let profile = match map.profile {
        Profile::Paper => "paper",
        Profile::Auster => "auster",
    };
    json!({
        "generation": map.generation,
        "sha256": map.digest().to_string(),
        "profile": profile,
        "rules": rules.collect::<Vec<_>>(),
        "default": map.default.to_string(),
        "algorithm": map.scheduling.algorithm.name(),
        "hard_bytes": map.scheduling.bytes_hard,
        "packet_out_free": map.scheduling.packet_out_free,
        "queues": queues.map(|(id, queue)| queue_document(id, queue)).collect::<Vec<_>>(),
        "dscp_queue": map.dscp_queue.to_vec(),
        "traffic_types": TrafficType::ALL.map(TrafficType::name),
        "messages": types.collect::<Vec<_>>(),
    })
}

fn queue_document(id: usize, queue: &QueueConfig) -> Value {
    json!({
        "id": id,
        "weight": queue.weight,
        "min_rate_bit_s": queue.min_rate.map(|bytes| bytes.saturating_mul(8)),
        "deadline_ms": queue.deadline.as_secs_f64() * 1e3,
        "limit_msgs": queue.messages_max,
        "limit_bytes": queue.bytes_max,
        "max_age_ms": queue.age_max.as_secs_f64() * 1e3,
    })
}
