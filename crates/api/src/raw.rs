//! JSON that is passed on as it is: written once, copied from then on.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Any JSON value, kept as text.
#[derive(Clone, Debug)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// The text of a value.
    pub fn new(value: &impl Serialize) -> Self {
        let text = serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self(text.into())
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The value.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }
}

impl Default for RawJson {
    /// An empty list.
    fn default() -> Self {
        Self::new(&Value::Array(Vec::new()))
    }
}

impl From<Box<RawValue>> for RawJson {
    fn from(text: Box<RawValue>) -> Self {
        Self(text.into())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    /// Through a value: inside a tagged enum the text itself is no longer at hand.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(&Value::deserialize(deserializer)?))
    }
}
