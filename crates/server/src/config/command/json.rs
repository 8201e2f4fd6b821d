//! Converts a JSON object to TOML, which the reader of the configuration can read.

use serde_json::Value;

pub(super) fn toml_of_json(text: &[u8]) -> Result<String, String> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| format!("the request is not JSON: {error}"))?;
    let Value::Object(members) = value else {
        return Err("the request is not a JSON object".to_owned());
    };
    let mut toml = String::new();
    for (key, value) in &members {
        toml += &format!("{} = ", Value::from(&**key));
        put_value(&mut toml, value)?;
        toml.push('\n');
    }
    Ok(toml)
}

/// Appends `value` as TOML. Strings, numbers and lists of JSON are valid TOML.
fn put_value(toml: &mut String, value: &Value) -> Result<(), String> {
    let list = |toml: &mut String, ends: [char; 2], put: &mut dyn FnMut(&mut String) -> _| {
        toml.push(ends[0]);
        let done: Result<(), String> = put(toml);
        toml.push(ends[1]);
        done
    };
    match value {
        Value::Null => {
            Err("`null` is not allowed: leave out the keys that should not change".to_owned())
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            toml.push_str(&value.to_string());
            Ok(())
        }
        Value::Array(items) => list(toml, ['[', ']'], &mut |toml| {
            items.iter().enumerate().try_for_each(|(index, item)| {
                toml.push_str(if index > 0 { ", " } else { "" });
                put_value(toml, item)
            })
        }),
        Value::Object(members) => list(toml, ['{', '}'], &mut |toml| {
            members.iter().enumerate().try_for_each(|(index, (key, item))| {
                toml.push_str(if index > 0 { ", " } else { "" });
                toml.push_str(&format!("{} = ", Value::from(&**key)));
                put_value(toml, item)
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_json_value_has_a_toml_form() {
        let list = r#"{"overload": {"shed": ["\u00e9\n", [], {"a": true}], "x": {}}}"#;
        assert_eq!(
            toml_of_json(list.as_bytes()).unwrap(),
            "\"overload\" = {\"shed\" = [\"é\\n\", [], {\"a\" = true}], \"x\" = {}}\n"
        );
    }
}
