//! Lists of OS strings in JSON: text where they are UTF-8, else `{"bytes": [..]}`, so that no name is bent on its way.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub fn value(text: &OsStr) -> Value {
    match text.to_str() {
        Some(text) => Value::from(text),
        None => json!({ "bytes": text.as_bytes() }),
    }
}

pub(super) fn back(value: Value) -> Option<OsString> {
    if let Value::String(text) = value {
        return Some(text.into());
    }
    let bytes = value.get("bytes")?.as_array()?;
    let bytes: Option<Vec<u8>> = bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
    bytes.map(OsString::from_vec)
}

/// For `#[serde(with = "osjson::one")]` on a `PathBuf` or an `OsString`.
pub mod one {
    use super::{OsStr, OsString, Value, back, value};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: AsRef<OsStr>, S: Serializer>(text: &T, to: S) -> Result<S::Ok, S::Error> {
        match text.as_ref().to_str() {
            Some(text) => to.serialize_str(text),
            None => value(text.as_ref()).serialize(to),
        }
    }

    pub fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let text = back(Value::deserialize(from)?).map(T::from);
        text.ok_or_else(|| D::Error::custom("neither a string nor {\"bytes\": [..]}"))
    }
}

/// For `#[serde(with = "osjson")]` on a `Vec<PathBuf>` or a `Vec<OsString>`.
pub fn serialize<T: AsRef<OsStr>, S: Serializer>(list: &[T], to: S) -> Result<S::Ok, S::Error> {
    let values: Vec<Value> = list.iter().map(|text| value(text.as_ref())).collect();
    values.serialize(to)
}

pub fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let values = Vec::<Value>::deserialize(from)?;
    let list: Option<Vec<T>> = values.into_iter().map(|value| back(value).map(T::from)).collect();
    list.ok_or_else(|| D::Error::custom("neither a string nor {\"bytes\": [..]}"))
}
