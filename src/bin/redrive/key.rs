//! Idempotency keys, from lines.

use serde_json::Value;

/// Where the key of a line comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeySource<'a> {
    /// There is none.
    Nowhere,
    /// The line itself.
    Line,
    /// Fields of the JSON object.
    Fields(&'a [String]),
}

/// The key of a line, or why it has none.
pub(crate) fn of(
    source: KeySource<'_>,
    line: &[u8],
    json: Option<&Value>,
) -> Result<Option<String>, String> {
    match source {
        KeySource::Nowhere => Ok(None),
        KeySource::Line => match std::str::from_utf8(line) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(error) => Err(format!(
                "the key cannot be used: it is not UTF-8 (byte {}); use another key, or none",
                error.valid_up_to()
            )),
        },
        KeySource::Fields(fields) => {
            let parts: Result<Vec<String>, String> = fields
                .iter()
                .map(|name| field(json.and_then(|object| object.get(name)), name))
                .collect();
            let parts = parts?;
            Ok(Some(match parts.as_slice() {
                [one] => one.clone(),
                many => many.iter().map(|part| escape(part)).collect::<Vec<_>>().join(":"),
            }))
        }
    }
}

fn field(value: Option<&Value>, name: &str) -> Result<String, String> {
    match value {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Bool(truth)) => Ok(truth.to_string()),
        // Others are kept as floating point numbers, in which two different ones may be the same.
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
        None => Err(format!("the key cannot be used: there is no field {name:?}")),
        Some(Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) => Err(format!(
            "the key cannot be used: field {name:?} is neither a text nor a boolean nor a whole \
             number of up to 64 bits"
        )),
    }
}

/// Makes joining reversible.
fn escape(part: &str) -> String {
    part.replace('\\', "\\\\").replace(':', "\\:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(names: &[&str], json: &str) -> Result<Option<String>, String> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let json = serde_json::from_str(json).unwrap();
        of(KeySource::Fields(&names), b"", Some(&json))
    }

    #[test]
    fn fields_are_joined_so_that_different_ones_differ() {
        let key = |json| fields(&["a", "b"], json).unwrap().unwrap();
        assert_eq!(key(r#"{"a":"x","b":7}"#), "x:7");
        assert_eq!(key(r#"{"a":"x:7","b":true}"#), r"x\:7:true");
        assert_ne!(key(r#"{"a":"x:","b":"y"}"#), key(r#"{"a":"x","b":":y"}"#));
        assert_ne!(key(r#"{"a":"x\\","b":"y"}"#), key(r#"{"a":"x","b":"\\y"}"#));
        assert_eq!(fields(&["a"], r#"{"a":"x:y"}"#), Ok(Some("x:y".into())));
    }

    #[test]
    fn fields_that_are_no_identity_are_refused() {
        for json in [
            r#"{}"#,
            r#"[1]"#,
            r#"{"a":null}"#,
            r#"{"a":1.5}"#,
            r#"{"a":123456789012345678901234567890}"#,
            r#"{"a":{}}"#,
        ] {
            assert!(fields(&["a"], json).is_err(), "{json}");
        }
    }
}
