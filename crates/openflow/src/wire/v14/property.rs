//! The list of properties that ends many structures of 1.4 and later.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::Property;
use crate::types::Version;

use super::super::reader::Reader;
use super::super::writer::Writer;

/// Type and length.
const HEADER_LEN: usize = 4;

/// Experimenter id and type of a vendor's property.
const EXPERIMENTER_LEN: usize = 8;

/// Returns the error for a wrong length. 1.3 has no property errors; extensions that bring
/// properties to 1.3 use the length error of messages.
pub(in crate::wire) fn bad_len(r: &Reader) -> ErrorKind {
    if r.is_since(Version::V14) {
        ErrorKind::PROPERTY_BAD_LEN
    } else {
        ErrorKind::BAD_LEN
    }
}

/// Passes the type and body of each property to `one` until `r` is used up.
pub(in crate::wire) fn each(
    r: &mut Reader,
    mut one: impl FnMut(u16, &mut Reader) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let (short, what) = (bad_len(r), "property");
    while !r.is_empty() {
        let refused = DecodeError {
            what,
            ..r.error(short)
        };
        let len = usize::from(r.peek_u16(2).map_err(|_| refused)?);
        if len < HEADER_LEN {
            return Err(refused);
        }
        let mut padded = r.part(len.next_multiple_of(8), short, what)?;
        let mut body = padded.part(len, short, what)?;
        let property = body.u16()?;
        body.skip(2)?;
        one(property, &mut body)?;
        body.done()?;
    }
    Ok(())
}

/// Reads a list of properties: `one` reads the types that it knows, and `other` makes the rest.
pub(in crate::wire) fn list<T>(
    r: &mut Reader,
    one: impl Fn(u16, &mut Reader) -> Result<Option<T>, DecodeError>,
    other: impl Fn(Property) -> T,
) -> Result<Vec<T>, DecodeError> {
    let mut list = Vec::new();
    each(r, |property, body| {
        list.push(match one(property, body)? {
            Some(known) => known,
            None => other(raw(property, body)?),
        });
        Ok(())
    })?;
    Ok(list)
}

/// Reads a list of properties whose types have no name here.
pub(in crate::wire) fn raws(r: &mut Reader) -> Result<Vec<Property>, DecodeError> {
    list(r, |_, _| Ok(None), |property| property)
}

/// Reads the body of a property unchanged.
pub(in crate::wire) fn raw(property: u16, body: &mut Reader) -> Result<Property, DecodeError> {
    if property == Property::EXPERIMENTER && body.left() < EXPERIMENTER_LEN {
        return Err(body.error(bad_len(body)));
    }
    let data = body.rest();
    Ok(Property { property, data })
}

/// Writes a property and the padding after it.
pub(in crate::wire) fn put(
    property: u16,
    w: &mut Writer,
    body: impl FnOnce(&mut Writer),
) -> Result<(), EncodeError> {
    let start = w.at();
    w.u16(property);
    w.zeros(2);
    body(w);
    w.close(start, 2, "property")?;
    w.align8(start);
    Ok(())
}

pub(in crate::wire) fn put_raw(property: &Property, w: &mut Writer) -> Result<(), EncodeError> {
    if property.property == Property::EXPERIMENTER && property.data.len() < EXPERIMENTER_LEN {
        return w.unsupported("property of a vendor without id and type");
    }
    put(property.property, w, |w| w.bytes(&property.data))
}

pub(in crate::wire) fn put_raws(list: &[Property], w: &mut Writer) -> Result<(), EncodeError> {
    list.iter().try_for_each(|property| put_raw(property, w))
}
