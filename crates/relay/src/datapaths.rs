//! The datapaths that a switch claims, if the certificate of its relay names one: in OpenFlow's
//! FEATURES_REPLY, or in OVSDB's column `datapath_id`.

use openflow::DatapathId;

/// Finds the datapath ids that a database names, as its bytes arrive.
///
/// It understands only the strings, escapes and nesting of JSON, and keeps only the string that is
/// arriving. So it needs little memory whatever the database sends.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    place: Place,
    /// The string that is arriving, or the last one, cut to the length that can matter.
    text: Vec<u8>,
    /// Whether the last token was the string `datapath_id`.
    is_key: bool,
    /// The number of open arrays and objects within the value of that key.
    value_depth: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Structure,
    Text,
    Escape,
    /// The number of hex digits still to come, and the value of those before them.
    Unicode(u8, u32),
}

const KEY: &[u8] = b"datapath_id";
/// A length above that of the key and of any datapath id.
const TEXT_BYTES_MAX: usize = 24;

impl Claims {
    /// Takes the next bytes. Returns the first datapath in them that is not `certified`.
    pub fn handle(&mut self, bytes: &[u8], certified: DatapathId) -> Option<DatapathId> {
        let mut claims = bytes.iter().filter_map(|byte| self.take(*byte));
        claims.find(|id| *id != certified)
    }

    fn take(&mut self, byte: u8) -> Option<DatapathId> {
        match (self.place, byte) {
            (Place::Structure, byte) => self.structure(byte),
            (Place::Text, b'\\') => self.place = Place::Escape,
            (Place::Text, b'"') => {
                self.place = Place::Structure;
                if self.value_depth.is_some() {
                    return self.datapath();
                }
                self.is_key = self.text == KEY;
            }
            (Place::Text, byte) => self.push(byte),
            (Place::Escape, b'u') => self.place = Place::Unicode(4, 0),
            (Place::Escape, byte) => {
                self.place = Place::Text;
                self.push(byte);
            }
            (Place::Unicode(left, value), digit) => {
                let digit = char::from(digit).to_digit(16).unwrap_or(0);
                let value = value << 4 | digit;
                self.place = match left {
                    1 => {
                        // Characters beyond ASCII are in neither the key nor an id.
                        self.push(u8::try_from(value).unwrap_or(u8::MAX));
                        Place::Text
                    }
                    left => Place::Unicode(left - 1, value),
                };
            }
        }
        None
    }

    fn structure(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return,
            b'"' => {
                self.place = Place::Text;
                self.text.clear();
                return;
            }
            b':' if self.is_key => self.value_depth = Some(0),
            b'[' | b'{' => self.value_depth = self.value_depth.map(|depth| depth.saturating_add(1)),
            b']' | b'}' => {
                self.value_depth = self.value_depth.and_then(|depth| depth.checked_sub(1));
            }
            b',' if self.value_depth == Some(0) => self.value_depth = None,
            _ => {}
        }
        self.is_key = false;
    }

    fn push(&mut self, byte: u8) {
        if self.text.len() < TEXT_BYTES_MAX {
            self.text.push(byte);
        }
    }

    /// The datapath id, in Open vSwitch's form of 16 hex digits.
    fn datapath(&self) -> Option<DatapathId> {
        let digits = std::str::from_utf8(&self.text).ok()?;
        let is_id = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let id = u64::from_str_radix(digits, 16).ok().filter(|_| is_id)?;
        Some(DatapathId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: DatapathId = DatapathId(7);

    /// Returns the result, which must be the same however the stream is cut.
    fn first(text: &str) -> Option<DatapathId> {
        let whole = Claims::default().handle(text.as_bytes(), OURS);
        let mut claims = Claims::default();
        let mut bytes = text.as_bytes().chunks(1);
        let cut = bytes.find_map(|byte| claims.handle(byte, OURS));
        assert_eq!(whole, cut, "{text}");
        whole
    }

    #[test]
    fn an_id_that_is_not_the_certificates_is_found_wherever_it_is() {
        let row = |id: &str| {
            format!(
                r#"{{"id":3,"result":{{"Bridge":{{"x":{{"initial":{{"name":"br0",{id}}}}}}}}}}}"#
            )
        };
        for (id, found) in [
            (r#""datapath_id":"0000000000000007""#, None),
            (r#""datapath_id":"0000000000000008""#, Some(DatapathId(8))),
            (
                r#""datapath_id" : "00000000000000AB""#,
                Some(DatapathId(0xab)),
            ),
            (
                r#""datapath_id":["set",["0000000000000008"]]"#,
                Some(DatapathId(8)),
            ),
            (
                r#""datapath_id":["set",[]],"other":"0000000000000008""#,
                None,
            ),
            (
                r#""datap\u0061th_id":"000000000000000\u0038""#,
                Some(DatapathId(8)),
            ),
            (
                r#""datapath_id":"0000000000000007","x":"0000000000000008""#,
                None,
            ),
            (r#""x":"datapath_id","y":"0000000000000008""#, None),
            (r#""x":["datapath_id","0000000000000008"]"#, None),
            (r#""name":"\"datapath_id\":\"0000000000000008\"""#, None),
            // A schema.
            (
                r#""datapath_id":{"type":{"key":"string","min":0,"max":1},"ephemeral":true}"#,
                None,
            ),
        ] {
            assert_eq!(first(&row(id)), found, "{id}");
        }
        let two = [
            row(r#""datapath_id":"0000000000000007""#),
            row(r#""datapath_id":"0000000000000009""#),
        ];
        assert_eq!(first(&two.concat()), Some(DatapathId(9)));
    }
}
