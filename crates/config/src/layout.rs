//! Places of switches on the dashboard's map, which everybody who opens it shares.

use std::collections::BTreeMap;

use openflow::DatapathId;
use serde::Serialize;
use utoipa::ToSchema;

use super::qos::tree::{Node, Reader};

/// Switches that have places: the page draws no more at once.
pub const PLACES_MAX: usize = 5000;
/// The greatest distance from the middle of the map in each direction.
const FAR: i64 = 1_000_000;

/// The map as somebody has saved it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Layout {
    /// The switch's datapath id, and its place: to the right and down from the middle, from
    /// -1,000,000 to 1,000,000. At most 5,000.
    #[schema(example = json!({"0000000000000001": [-75, 0], "0000000000000002": [75, 0]}))]
    pub places: BTreeMap<String, [i32; 2]>,
}

/// Reads a layout. Everything that is wrong with it is noted by its place.
pub fn read(reader: &mut Reader, node: &Node) -> Option<Layout> {
    if !reader.only(node, "layout", &["places"]) {
        return None;
    }
    let Some(places) = node.get("places").filter(|places| places.is_table()) else {
        let place = &node.get("places").unwrap_or(node).place;
        reader.wrong(
            place,
            "places must have switches, such as {\"0000000000000001\": [0, 0]}",
        );
        return None;
    };
    let count = places.entries().len();
    if count > PLACES_MAX {
        let text = format!("places has {count} switches, and at most {PLACES_MAX} are kept");
        reader.wrong(&places.place, text);
        return None;
    }
    let mut layout = Layout::default();
    for (key, at) in places.entries() {
        let dpid = match key.parse::<DatapathId>() {
            Ok(dpid) => dpid.to_string(),
            Err(problem) => {
                reader.wrong(&at.place, problem);
                continue;
            }
        };
        let [x, y] = at.items() else {
            reader.wrong(
                &at.place,
                format!("{dpid} must have a place, such as [0, 0]"),
            );
            continue;
        };
        let [Some(x), Some(y)] = [x, y].map(|of| coordinate(reader, of)) else {
            continue;
        };
        if layout.places.insert(dpid.clone(), [x, y]).is_some() {
            reader.wrong(&at.place, format!("{dpid} is there twice"));
        }
    }
    Some(layout)
}

fn coordinate(reader: &mut Reader, node: &Node) -> Option<i32> {
    let whole = node.as_whole().filter(|n| (-FAR..=FAR).contains(n));
    let whole = whole.and_then(|n| i32::try_from(n).ok());
    if whole.is_none() {
        let text = format!("it must be a whole number from -{FAR} to {FAR}");
        reader.wrong(&node.place, text);
    }
    whole
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read_json(value: &Value) -> Result<Layout, Vec<(String, String)>> {
        let mut reader = Reader::default();
        let layout = read(&mut reader, &Node::of_json(value));
        let problems = reader.problems.into_iter();
        let problems: Vec<_> = problems
            .map(|wrong| (wrong.place.pointer, wrong.text))
            .collect();
        layout.filter(|_| problems.is_empty()).ok_or(problems)
    }

    #[test]
    fn a_layout_is_written_as_it_was_read() {
        let text =
            json!({"places": {"0000000000000001": [-1_000_000, 7], "00000000000000ff": [0, 0]}});
        assert_eq!(json!(read_json(&text).unwrap()), text);
        let other = read_json(&json!({"places": {"255": [1, 2]}})).unwrap();
        assert_eq!(other.places["00000000000000ff"], [1, 2]);
        assert_eq!(read_json(&json!({"places": {}})), Ok(Layout::default()));
    }

    #[test]
    fn all_that_is_wrong_is_told_by_field() {
        let text = json!({"zoom": 2, "places": {
            "1": [1.5, "2"], "2": [0, 1_000_001], "3": [0], "4": null, "five": [0, 0],
            "0000000000000006": [0, 0], "6": [1, 1], "7": [i64::MIN, 1e300],
        }});
        let mut problems = read_json(&text).unwrap_err();
        problems.sort();
        let starts = [
            ("/places/1/0", "it must be a whole number from -1000000 to"),
            ("/places/1/1", "it must be a whole number"),
            ("/places/2/1", "it must be a whole number"),
            ("/places/3", "0000000000000003 must have a place, such as"),
            ("/places/4", "0000000000000004 must have a place"),
            ("/places/6", "0000000000000006 is there twice"),
            ("/places/7/0", "it must be a whole number"),
            ("/places/7/1", "it must be a whole number"),
            ("/places/five", "'five' is not a datapath id"),
            ("/zoom", "'zoom' is no field of a layout; known: places"),
        ];
        assert_eq!(problems.len(), starts.len(), "{problems:#?}");
        for ((pointer, problem), (place, start)) in problems.iter().zip(starts) {
            assert!(
                pointer == place && problem.starts_with(start),
                "{place}: {problems:#?}"
            );
        }
        for text in [json!({}), json!({"places": []}), json!({"places": null})] {
            let problems = read_json(&text).unwrap_err();
            assert!(
                problems[0].1.starts_with("places must have switches"),
                "{text}"
            );
        }
        assert_eq!(read_json(&json!(7)).unwrap_err().len(), 1);
    }

    #[test]
    fn too_many_places_are_one_mistake() {
        let many = |count: usize| {
            let places = (0..count).map(|n| (format!("{n:016x}"), json!([0, -1_000_000])));
            json!({"places": places.collect::<serde_json::Map<_, _>>()})
        };
        assert_eq!(
            read_json(&many(PLACES_MAX)).unwrap().places.len(),
            PLACES_MAX
        );
        let problems = read_json(&many(PLACES_MAX + 1)).unwrap_err();
        let text = "places has 5001 switches, and at most 5000 are kept";
        assert_eq!(problems, [("/places".to_owned(), text.to_owned())]);
    }
}
