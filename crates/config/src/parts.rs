//! Stated groups and meters as the API has them: JSON with the syntax of ovs-ofctl.

use control::flows::parts::{PartKind, PartMod, PartName, PartView, StaticPart};
use openflow::text::{parse_group_of, parse_meter_of};
use openflow::{DatapathId, GroupId, MeterId};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::flows::{GO_ON, state_words, words};
use super::qos::tree::{Node, Reader};

/// The fields of a body. Other fields of an answer are ignored, so that an answer can be put back.
const FIELDS: [&str; 7] = [
    "owner", "name", "switch", "number", "state", "reason", "group",
];

/// A group as it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct StatedGroup {
    #[schema(example = "0000000000000001")]
    pub switch: String,
    /// From 1 to 1,610,612,735. Without, it follows from owner and name.
    #[schema(required = false, minimum = 1, maximum = 1610612735)]
    pub number: Option<u32>,
    /// In the words of `ovs-ofctl add-group`, without the number.
    #[schema(example = "type=select,bucket=output:1,bucket=output:2")]
    pub group: String,
}

/// A meter as it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct StatedMeter {
    #[schema(example = "0000000000000001")]
    pub switch: String,
    /// From 1 to 16,383. Without, it follows from owner and name.
    #[schema(required = false, minimum = 1, maximum = 16383)]
    pub number: Option<u32>,
    /// In the words of `ovs-ofctl add-meter`, without the number.
    #[schema(example = "kbps,burst,bands=type=drop,rate=1000,burst_size=100")]
    pub meter: String,
}

/// A group, and what has become of it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct StatedGroupDocument {
    #[schema(example = "ann")]
    pub owner: String,
    #[schema(example = "both")]
    pub name: String,
    pub switch: String,
    /// Its number in the switch.
    pub number: u32,
    pub group: String,
    /// `wanted` while the switch is away, `sent`, `in_use`, `no_port` or `refused`.
    #[schema(example = "in_use")]
    pub state: &'static str,
    /// The port that the switch does not have, or the reason why it does not take the group.
    pub reason: Option<String>,
}

/// A meter, and what has become of it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct StatedMeterDocument {
    #[schema(example = "ann")]
    pub owner: String,
    #[schema(example = "slow")]
    pub name: String,
    pub switch: String,
    /// Its number in the switch.
    pub number: u32,
    pub meter: String,
    /// `wanted` while the switch is away, `sent`, `in_use` or `refused`.
    #[schema(example = "in_use")]
    pub state: &'static str,
    /// The reason why the switch does not take it.
    pub reason: Option<String>,
}

/// Reads a group or a meter. Notes each mistake by its field.
pub fn read(reader: &mut Reader, name: &PartName, node: &Node) -> Option<StaticPart> {
    let before = reader.problems.len();
    let word = name.kind.word();
    let fields = FIELDS.map(|field| if field == "group" { word } else { field });
    if !reader.only(node, word, &fields) {
        return None;
    }
    let own = [("owner", &name.of.owner), ("name", &name.of.name)];
    for (key, own) in own {
        if let Some(said) = node.get(key).filter(|said| said.as_text() != Some(own)) {
            let text = format!("{key}: the path says '{own}'; leave it out here, or say the same");
            reader.wrong(&said.place.clone(), text);
        }
    }
    let example = match name.kind {
        PartKind::Group => "type=all,bucket=output:1,bucket=output:2",
        PartKind::Meter => "kbps,bands=type=drop,rate=1000",
    };
    for (key, example) in [("switch", "0000000000000001"), (word, example)] {
        if node.get(key).is_none() {
            let text = format!("{key} is missing: such as \"{example}\"");
            reader.wrong(&node.place, text);
        }
    }
    let dpid = reader.parsed(node, "switch", "0000000000000001", str::parse::<DatapathId>);
    let given = name.kind.number(&name.of);
    let said = node.get("number").filter(|said| !said.is_null());
    // An answer that is put back has the number derived from the name.
    let most = u64::from(name.kind.stated_max());
    let number = match said {
        Some(said) if said.as_number() != Some(given.into()) => {
            reader.number(node, "number", 1..=most).map(|n| n as u32)
        }
        _ => None,
    };
    let is_numbered = number.is_some();
    let number = number.unwrap_or(given);
    let (place, text) = words(reader, node, word, example)?;
    if text.split([',', '=']).any(|part| part.trim() == GO_ON) {
        let problem = format!("{word}: {GO_ON} is for entries; end the entry's actions with it");
        reader.wrong(&place, problem);
        return None;
    }
    let read = match name.kind {
        PartKind::Group => parse_group_of(GroupId(number), text).map(PartMod::Group),
        PartKind::Meter => parse_meter_of(MeterId(number), text).map(PartMod::Meter),
    };
    let part = match read {
        Ok(add) => StaticPart {
            dpid: dpid?,
            add,
            is_numbered,
            words: text.to_owned(),
        },
        Err(error) => {
            reader.wrong(&place, format!("{word}: {error}"));
            return None;
        }
    };
    for (field, why) in part.problems() {
        let place = node.get(field).map_or(&node.place, |field| &field.place);
        reader.wrong(&place.clone(), format!("{field}: {why}"));
    }
    (reader.problems.len() == before).then_some(part)
}

/// A group or a meter as it was asked for.
pub fn stated(part: &StaticPart) -> Value {
    let (switch, words) = (part.dpid.to_string(), part.words.clone());
    let number = part.is_numbered.then(|| part.id().number());
    match part.id().kind() {
        PartKind::Group => json!(StatedGroup {
            switch,
            number,
            group: words,
        }),
        PartKind::Meter => json!(StatedMeter {
            switch,
            number,
            meter: words,
        }),
    }
}

pub fn show_group(view: &PartView) -> StatedGroupDocument {
    let (state, reason) = state_words(&view.state);
    StatedGroupDocument {
        owner: view.name.of.owner.clone(),
        name: view.name.of.name.clone(),
        switch: view.part.dpid.to_string(),
        number: view.part.id().number(),
        group: view.part.words.clone(),
        state,
        reason,
    }
}

pub fn show_meter(view: &PartView) -> StatedMeterDocument {
    let (state, reason) = state_words(&view.state);
    StatedMeterDocument {
        owner: view.name.of.owner.clone(),
        name: view.name.of.name.clone(),
        switch: view.part.dpid.to_string(),
        number: view.part.id().number(),
        meter: view.part.words.clone(),
        state,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use control::flows::{FlowName, FlowState};

    use super::*;

    fn name(kind: PartKind) -> PartName {
        PartName {
            kind,
            of: FlowName::new("ann", "both"),
        }
    }

    fn mistakes(kind: PartKind, body: Value) -> Vec<String> {
        let mut reader = Reader::default();
        let read = read(&mut reader, &name(kind), &Node::of_json(&body));
        assert_eq!(read.is_some(), reader.problems.is_empty());
        let wrong = reader.problems.iter();
        let line = wrong.map(|wrong| format!("{} {}", wrong.place.pointer, wrong.text));
        line.collect()
    }

    #[test]
    fn an_answer_can_be_put_back() {
        let group = "type=select,bucket=output:1,bucket=weight:2,output:2";
        for (kind, body) in [
            (PartKind::Group, json!({"switch": "1", "group": group})),
            (
                PartKind::Group,
                json!({"switch": "1", "group": group, "number": 7}),
            ),
            (
                PartKind::Meter,
                json!({"switch": "1", "meter": "kbps,bands=type=drop,rate=1000"}),
            ),
        ] {
            let (mut reader, name) = (Reader::default(), name(kind));
            let part = read(&mut reader, &name, &Node::of_json(&body)).unwrap();
            let view = PartView {
                name: name.clone(),
                part: part.clone(),
                state: FlowState::InUse,
            };
            let shown = match kind {
                PartKind::Group => json!(show_group(&view)),
                PartKind::Meter => json!(show_meter(&view)),
            };
            for again in [shown, stated(&part)] {
                let again = read(&mut reader, &name, &Node::of_json(&again));
                assert_eq!(again.as_ref(), Some(&part));
            }
        }
    }

    #[test]
    fn each_mistake_is_named_by_its_field() {
        let group = |key: &str, value: Value| {
            let mut body = json!({"switch": "1", "group": "type=all,bucket=output:1"});
            body[key] = value;
            (PartKind::Group, body)
        };
        let meter = |value: &str| (PartKind::Meter, json!({"switch": "1", "meter": value}));
        for ((kind, body), expected) in [
            (group("switch", json!("x")), "/switch switch: "),
            (group("number", json!(0)), "/number number is"),
            (group("number", json!(0x6175_0001)), "/number number is"),
            (group("group", json!(null)), " group is missing: such as"),
            (group("group", json!("bucket=output:1")), "/group group: "),
            (
                group("group", json!("group_id=1,type=all")),
                "/group group: ",
            ),
            (
                group("group", json!("type=all,bucket=group:3")),
                "/group group: a bucket cannot lead",
            ),
            (group("name", json!("x")), "/name name: the path says"),
            (group("meter", json!("x")), "/meter 'meter' is no field"),
            (meter("kbps"), "/meter meter: it needs 1 to 16 bands"),
            (meter("meter=1,kbps"), "/meter meter: "),
            (meter("kbps,bands=type=x"), "/meter meter: "),
        ] {
            let found = mistakes(kind, body.clone());
            let is_right = found.len() == 1 && found[0].starts_with(expected);
            assert!(is_right, "{body}: {found:?}");
        }
    }
}
