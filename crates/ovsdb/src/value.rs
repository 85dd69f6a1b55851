//! Values of columns (section 5.1): atoms, sets and maps.
//!
//! On the wire a set of one element is written as the element. [`Datum`] hides that: a scalar is a
//! set of one element, so equal values compare equal however a server wrote them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::fmt;
use std::iter::{Chain, Flatten};
use std::option;
use std::str::FromStr;

use serde_json::{Value, json};

/// A row's identity: 128 bits, written `550e8400-e29b-41d4-a716-446655440000`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub u128);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let (a, b, c) = (&hex[..8], &hex[8..12], &hex[12..16]);
        write!(f, "{a}-{b}-{c}-{}-{}", &hex[16..20], &hex[20..])
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Uuid {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Uuid, ValueError> {
        let dash = |i: usize| matches!(i, 8 | 13 | 18 | 23);
        let well_formed = text.len() == 36
            && text.bytes().enumerate().all(|(i, b)| {
                if dash(i) {
                    b == b'-'
                } else {
                    b.is_ascii_hexdigit()
                }
            });
        if !well_formed {
            return Err(ValueError::Uuid);
        }
        u128::from_str_radix(&text.replace('-', ""), 16)
            .map(Uuid)
            .map_err(|_| ValueError::Uuid)
    }
}

/// One value. Reals are ordered by `f64::total_cmp`, so that every atom can be a map's key.
#[derive(Clone, Debug)]
pub enum Atom {
    /// A signed 64-bit integer.
    Integer(i64),
    /// A double-precision number.
    Real(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// UTF-8 text.
    String(String),
    /// Identity of a row.
    Uuid(Uuid),
    /// The row that another operation of the same transaction inserts under this name. Never
    /// received.
    NamedUuid(String),
}

/// A column's value.
///
/// ```
/// use ovsdb::Datum;
/// use serde_json::json;
///
/// // Servers write a set of one as the element or as a set.
/// let name = Datum::from_json(&json!(["set", ["br0"]]))?;
/// assert_eq!(name, Datum::from("br0"));
/// assert_eq!(name.as_str(), Some("br0"));
///
/// let options = Datum::map([("dscp", "46")]);
/// assert_eq!(options.get("dscp"), Some("46"));
/// assert_eq!(options.to_json(), json!(["map", [["dscp", "46"]]]));
/// # Ok::<(), ovsdb::ValueError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Datum {
    /// A scalar is a set of one.
    Set(Atoms),
    /// Values by key.
    Map(BTreeMap<Atom, Atom>),
}

/// A set of atoms. A single atom, as in nearly every column, is stored in place: a tree of one
/// takes 400 bytes, and a database may have a hundred thousand of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Atoms(Elements);

/// The smallest form for the number of atoms: a tree has at least two.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Elements {
    #[default]
    None,
    One(Atom),
    Tree(BTreeSet<Atom>),
}

type Flat<I> = Flatten<option::IntoIter<I>>;

impl Atoms {
    /// Makes an empty set.
    pub fn new() -> Atoms {
        Atoms::default()
    }

    /// Number of atoms.
    pub fn len(&self) -> usize {
        match &self.0 {
            Elements::None => 0,
            Elements::One(_) => 1,
            Elements::Tree(tree) => tree.len(),
        }
    }

    /// Reports whether the set has no atom.
    pub fn is_empty(&self) -> bool {
        self.0 == Elements::None
    }

    /// Least atom of the set.
    pub fn first(&self) -> Option<&Atom> {
        self.iter().next()
    }

    /// Reports whether the set has this atom.
    pub fn contains(&self, atom: &Atom) -> bool {
        match &self.0 {
            Elements::None => false,
            Elements::One(one) => one == atom,
            Elements::Tree(tree) => tree.contains(atom),
        }
    }

    /// Adds an atom. Returns `false` if the set has it already.
    pub fn insert(&mut self, atom: Atom) -> bool {
        match &mut self.0 {
            Elements::Tree(tree) => return tree.insert(atom),
            Elements::One(one) if *one == atom => return false,
            _ => {}
        }
        self.0 = match std::mem::take(&mut self.0) {
            Elements::One(one) => Elements::Tree([one, atom].into()),
            _ => Elements::One(atom),
        };
        true
    }

    /// Removes an atom. Returns `false` if the set does not have it.
    pub fn remove(&mut self, atom: &Atom) -> bool {
        let is_gone = match &mut self.0 {
            Elements::None => false,
            Elements::One(one) => one == atom,
            Elements::Tree(tree) => tree.remove(atom),
        };
        self.0 = match std::mem::take(&mut self.0) {
            Elements::One(_) if is_gone => Elements::None,
            Elements::Tree(mut tree) if tree.len() == 1 => {
                tree.pop_first().map_or(Elements::None, Elements::One)
            }
            elements => elements,
        };
        is_gone
    }

    /// Iterates over the atoms in their order.
    pub fn iter(&self) -> <&Atoms as IntoIterator>::IntoIter {
        self.into_iter()
    }
}

impl<'a> IntoIterator for &'a Atoms {
    type Item = &'a Atom;
    type IntoIter = Chain<option::IntoIter<&'a Atom>, Flat<btree_set::Iter<'a, Atom>>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, tree) = match &self.0 {
            Elements::None => (None, None),
            Elements::One(one) => (Some(one), None),
            Elements::Tree(tree) => (None, Some(tree.iter())),
        };
        one.into_iter().chain(tree.into_iter().flatten())
    }
}

impl IntoIterator for Atoms {
    type Item = Atom;
    type IntoIter = Chain<option::IntoIter<Atom>, Flat<btree_set::IntoIter<Atom>>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, tree) = match self.0 {
            Elements::None => (None, None),
            Elements::One(one) => (Some(one), None),
            Elements::Tree(tree) => (None, Some(tree.into_iter())),
        };
        one.into_iter().chain(tree.into_iter().flatten())
    }
}

impl FromIterator<Atom> for Atoms {
    fn from_iter<I: IntoIterator<Item = Atom>>(atoms: I) -> Atoms {
        let mut all = Atoms::new();
        for atom in atoms {
            all.insert(atom);
        }
        all
    }
}

/// Reason why JSON is not a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// null, an object, or an array that is not a set, map or uuid.
    #[error("not an OVSDB value")]
    NotAValue,
    /// An integer beyond 64 bits.
    #[error("an integer beyond 64 bits")]
    IntegerRange,
    /// Text that does not have the form of a UUID.
    #[error("not a UUID")]
    Uuid,
    /// A set or map with the same element or key twice.
    #[error("a set or map with the same element twice")]
    Duplicate,
}

impl Atom {
    /// Reads an `<atom>` (section 5.1). Fails on null, objects, other arrays than a UUID, and
    /// integers beyond 64 bits.
    pub fn from_json(value: &Value) -> Result<Atom, ValueError> {
        match value {
            Value::Bool(b) => Ok(Atom::Boolean(*b)),
            Value::String(s) => Ok(Atom::String(s.clone())),
            Value::Number(n) => match (n.as_i64(), n.as_f64()) {
                (Some(integer), _) => Ok(Atom::Integer(integer)),
                (None, _) if n.is_u64() => Err(ValueError::IntegerRange),
                (None, Some(real)) => Ok(Atom::Real(real)),
                (None, None) => Err(ValueError::IntegerRange),
            },
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(tag), Value::String(text)] if tag == "uuid" => {
                    text.parse().map(Atom::Uuid)
                }
                [Value::String(tag), Value::String(name)] if tag == "named-uuid" => {
                    Ok(Atom::NamedUuid(name.clone()))
                }
                _ => Err(ValueError::NotAValue),
            },
            Value::Null | Value::Object(_) => Err(ValueError::NotAValue),
        }
    }

    /// Returns the atom in the notation of section 5.1.
    pub fn to_json(&self) -> Value {
        match self {
            Atom::Integer(i) => json!(i),
            Atom::Real(r) => json!(r),
            Atom::Boolean(b) => json!(b),
            Atom::String(s) => json!(s),
            Atom::Uuid(uuid) => json!(["uuid", uuid.to_string()]),
            Atom::NamedUuid(name) => json!(["named-uuid", name]),
        }
    }

    /// Position of the atom's kind among the kinds.
    fn rank(&self) -> u8 {
        match self {
            Atom::Integer(_) => 0,
            Atom::Real(_) => 1,
            Atom::Boolean(_) => 2,
            Atom::String(_) => 3,
            Atom::Uuid(_) => 4,
            Atom::NamedUuid(_) => 5,
        }
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Atom) -> Ordering {
        match (self, other) {
            (Atom::Integer(a), Atom::Integer(b)) => a.cmp(b),
            (Atom::Real(a), Atom::Real(b)) => a.total_cmp(b),
            (Atom::Boolean(a), Atom::Boolean(b)) => a.cmp(b),
            (Atom::String(a), Atom::String(b)) => a.cmp(b),
            (Atom::Uuid(a), Atom::Uuid(b)) => a.cmp(b),
            (Atom::NamedUuid(a), Atom::NamedUuid(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Atom) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Atom) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Atom {}

impl Datum {
    /// Makes the empty set: an optional column without a value.
    pub fn empty() -> Datum {
        Datum::Set(Atoms::new())
    }

    /// Makes a set. Equal atoms count once.
    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Datum {
        Datum::Set(atoms.into_iter().map(Into::into).collect())
    }

    /// Makes a map. The last of equal keys wins.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Datum {
        Datum::Map(
            pairs
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        )
    }

    /// Reads a `<value>` (section 5.1). Fails if one of its atoms fails, or if an element or key
    /// occurs twice.
    pub fn from_json(value: &Value) -> Result<Datum, ValueError> {
        let tagged = value.as_array().map(Vec::as_slice);
        match tagged {
            Some([Value::String(tag), Value::Array(elements)]) if tag == "set" => {
                let set: Atoms = elements
                    .iter()
                    .map(Atom::from_json)
                    .collect::<Result<_, _>>()?;
                unique(set.len(), elements.len()).map(|()| Datum::Set(set))
            }
            Some([Value::String(tag), Value::Array(pairs)]) if tag == "map" => {
                let map: BTreeMap<Atom, Atom> = pairs
                    .iter()
                    .map(|pair| match pair.as_array().map(Vec::as_slice) {
                        Some([key, value]) => Ok((Atom::from_json(key)?, Atom::from_json(value)?)),
                        _ => Err(ValueError::NotAValue),
                    })
                    .collect::<Result<_, _>>()?;
                unique(map.len(), pairs.len()).map(|()| Datum::Map(map))
            }
            _ => Atom::from_json(value).map(Datum::from),
        }
    }

    /// Returns the value in the notation of section 5.1: a set of one as its element.
    pub fn to_json(&self) -> Value {
        match self {
            Datum::Set(set) if set.len() == 1 => set.first().map_or(Value::Null, Atom::to_json),
            Datum::Set(set) => json!(["set", set.iter().map(Atom::to_json).collect::<Vec<_>>()]),
            Datum::Map(map) => {
                let pairs: Vec<Value> = map
                    .iter()
                    .map(|(k, v)| json!([k.to_json(), v.to_json()]))
                    .collect();
                json!(["map", pairs])
            }
        }
    }

    /// The only element of a scalar or of an optional column that has a value.
    pub fn as_atom(&self) -> Option<&Atom> {
        match self {
            Datum::Set(set) if set.len() == 1 => set.first(),
            _ => None,
        }
    }

    /// Text of a scalar string.
    pub fn as_str(&self) -> Option<&str> {
        match self.as_atom() {
            Some(Atom::String(s)) => Some(s),
            _ => None,
        }
    }

    /// Number of a scalar integer.
    pub fn as_integer(&self) -> Option<i64> {
        match self.as_atom() {
            Some(Atom::Integer(i)) => Some(*i),
            _ => None,
        }
    }

    /// Truth of a scalar boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.as_atom() {
            Some(Atom::Boolean(b)) => Some(*b),
            _ => None,
        }
    }

    /// Identity in a scalar UUID.
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self.as_atom() {
            Some(Atom::Uuid(uuid)) => Some(*uuid),
            _ => None,
        }
    }

    /// Every UUID of a set, or of a map's values: the rows this column refers to.
    pub fn uuids(&self) -> Vec<Uuid> {
        let uuid_of = |atom: &Atom| match atom {
            Atom::Uuid(uuid) => Some(*uuid),
            _ => None,
        };
        match self {
            Datum::Set(set) => set.iter().filter_map(uuid_of).collect(),
            Datum::Map(map) => map.values().filter_map(uuid_of).collect(),
        }
    }

    /// The value of a string key in a map from strings to strings.
    pub fn get(&self, key: &str) -> Option<&str> {
        match self {
            Datum::Map(map) => match map.get(&Atom::String(key.into())) {
                Some(Atom::String(s)) => Some(s),
                _ => None,
            },
            Datum::Set(_) => None,
        }
    }
}

fn unique(kept: usize, given: usize) -> Result<(), ValueError> {
    if kept == given {
        Ok(())
    } else {
        Err(ValueError::Duplicate)
    }
}

impl From<i64> for Atom {
    fn from(i: i64) -> Atom {
        Atom::Integer(i)
    }
}

impl From<f64> for Atom {
    fn from(r: f64) -> Atom {
        Atom::Real(r)
    }
}

impl From<bool> for Atom {
    fn from(b: bool) -> Atom {
        Atom::Boolean(b)
    }
}

impl From<&str> for Atom {
    fn from(s: &str) -> Atom {
        Atom::String(s.into())
    }
}

impl From<String> for Atom {
    fn from(s: String) -> Atom {
        Atom::String(s)
    }
}

impl From<Uuid> for Atom {
    fn from(uuid: Uuid) -> Atom {
        Atom::Uuid(uuid)
    }
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Datum {
        Datum::Set(Atoms(Elements::One(atom.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_it_is_read() {
        let text = "0005e840-e29b-41d4-a716-446655440000";
        assert_eq!(text.parse::<Uuid>().unwrap().to_string(), text);
        for bad in [
            "",
            "+005e840-e29b-41d4-a716-446655440000",
            "0005e840e29b41d4a716446655440000",
        ] {
            assert_eq!(bad.parse::<Uuid>(), Err(ValueError::Uuid), "{bad}");
        }
        let non_ascii = "é05e840-e29b-41d4-a716-446655440000";
        assert_eq!(non_ascii.parse::<Uuid>(), Err(ValueError::Uuid));
    }

    #[test]
    fn a_set_of_one_equals_its_element() {
        let scalar = Datum::from_json(&json!("x")).unwrap();
        assert_eq!(Datum::from_json(&json!(["set", ["x"]])).unwrap(), scalar);
        assert_eq!(scalar.to_json(), json!("x"));
        assert_eq!(Datum::empty().to_json(), json!(["set", []]));
    }

    #[test]
    fn a_set_holds_what_a_tree_would() {
        let mut tree = BTreeSet::new();
        let mut atoms = Atoms::new();
        // Up to three elements and back, by every kind of step.
        for (insert, number) in [
            (false, 1),
            (true, 1),
            (true, 1),
            (true, 2),
            (false, 3),
            (true, 3),
            (false, 1),
            (false, 1),
            (false, 2),
            (false, 2),
            (false, 3),
            (true, 4),
        ] {
            let atom = Atom::Integer(number);
            let is_changed = match insert {
                true => (tree.insert(atom.clone()), atoms.insert(atom.clone())),
                false => (tree.remove(&atom), atoms.remove(&atom)),
            };
            assert_eq!(is_changed.0, is_changed.1, "{insert} {number}");
            assert_eq!(atoms, tree.iter().cloned().collect());
            assert!(atoms.iter().eq(&tree) && atoms.clone().into_iter().eq(tree.clone()));
            assert_eq!((atoms.len(), atoms.first()), (tree.len(), tree.first()));
            assert_eq!(atoms.is_empty(), tree.is_empty());
            assert_eq!(atoms.contains(&atom), tree.contains(&atom));
        }
    }

    #[test]
    fn what_is_not_a_value_is_refused() {
        for (json, error) in [
            (json!(null), ValueError::NotAValue),
            (json!({}), ValueError::NotAValue),
            (json!([]), ValueError::NotAValue),
            (json!(["set", 1]), ValueError::NotAValue),
            (json!(["set", [["set", []]]]), ValueError::NotAValue),
            (json!(["map", [[1]]]), ValueError::NotAValue),
            (json!(["uuid", "x"]), ValueError::Uuid),
            (json!(["set", [1, 1]]), ValueError::Duplicate),
            (json!(["map", [[1, 2], [1, 3]]]), ValueError::Duplicate),
            (json!(u64::MAX), ValueError::IntegerRange),
        ] {
            assert_eq!(Datum::from_json(&json), Err(error), "{json}");
        }
    }
}
