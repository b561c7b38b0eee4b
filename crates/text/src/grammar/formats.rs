//! Dates and times that exist.
//!
//! What llguidance takes for a `format` is close, but lets the 29th of February into every year, the year 0 and leap seconds
//! into every minute, which validators and the clients behind them refuse, and fractions of a second of any length, which a
//! model may go on with for ever. A pattern beside the format leaves those out.

use serde_json::{Map, Value, json};

const YEAR: &str = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
const LEAP_YEAR: &str = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)";
const DAY: &str =
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))";
const TIME: &str = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";

/// Keywords whose value is data and no schema.
const DATA: [&str; 5] = ["const", "enum", "default", "examples", "required"];
/// Keywords whose value is an object of schemas by name.
const NAMED: [&str; 5] = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];

/// Adds to a schema, and to those in it, what the formats of dates and times leave open.
pub(super) fn tighten(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(tighten),
        Value::Object(schema) => {
            for (keyword, value) in schema.iter_mut() {
                match value {
                    Value::Object(named) if NAMED.contains(&keyword.as_str()) => named.values_mut().for_each(tighten),
                    _ if DATA.contains(&keyword.as_str()) => {}
                    _ => tighten(value),
                }
            }
            add_pattern(schema);
        }
        _ => {}
    }
}

fn add_pattern(schema: &mut Map<String, Value>) {
    let date = format!("({YEAR}-{DAY}|{LEAP_YEAR}-02-29)");
    let pattern = match schema.get("format").and_then(Value::as_str) {
        Some("date") => format!("^{date}$"),
        Some("time") => format!("^{TIME}$"),
        Some("date-time") => format!("^{date}T{TIME}$"),
        _ => return,
    };
    if !schema.contains_key("pattern") {
        schema.insert("pattern".to_owned(), Value::from(pattern));
    } else if let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([])) {
        all.push(json!({ "pattern": pattern }));
    }
}
