//! How deep a JSON text nests, found without recursion and before anything is built from it.

/// The deepest nesting of arrays and objects: 0 for a scalar, 1 for `[]`.
///
/// Up to the first error of the text this is what a parser will meet, and a parser stops there; so a body within the
/// limit by this count never takes a parser beyond it. About a nanosecond per byte.
pub fn json_depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

/// Goes past the closing quote, or to the end where there is none.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn counts_what_nests_and_nothing_else() {
        for (text, depth) in [
            ("", 0),
            ("1", 0),
            ("\"[[[\"", 0),
            ("[]", 1),
            ("[{}]", 2),
            ("[[],[[]],[]]", 3),
            (r#"{"a":{"b":[1,2,{"c":"}"}]}}"#, 4),
            (r#"["\"[[[[", []]"#, 2),
            (r#"["\\", []]"#, 2),
            (r#"["\\\"[", []]"#, 2),
            ("]]]][", 1),
            ("\"unterminated [[[", 0),
            ("\"\\", 0),
        ] {
            assert_eq!(json_depth(text.as_bytes()), depth, "{text}");
        }
        assert_eq!(json_depth(&vec![b'['; 1 << 20]), 1 << 20);
    }

    fn depth_of(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
            Value::Object(fields) => 1 + fields.values().map(depth_of).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            "[\\[\\]{}\",\\\\a\u{e9}\n]{0,8}".prop_map(Value::from)
        ];
        leaf.prop_recursive(6, 40, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("[\\[\\]{}\"\\\\k]{0,4}", inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_a_parser(value in value(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            prop_assert_eq!(json_depth(text.unwrap().as_bytes()), depth_of(&value));
        }
    }
}
