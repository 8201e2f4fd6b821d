//! The JSON schema of the configuration file. Editors use the schema to complete and check the
//! file.

use serde_json::{Map, Value, json};
use tidegate_balance::registry::POLICIES;
use tidegate_control::registry::LAWS;
use tidegate_world::{Kind, Param, Range, Registry};
use toml::de::DeValue;

use super::knob::{Absent, Documented, Shape, Table};
use super::shape::{Real, Whole};
use super::tables::ROOT;
use super::tables::overload::{PARAMS, SHADOW_PARAMS};
use super::tables::pool::POOL_PARAMS;

/// Returns the schema of a configuration file, in JSON Schema draft 7.
pub fn json_schema() -> Value {
    let mut schema = of_table(&ROOT);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("Tidegate configuration");
    schema
}

fn of_table(table: &'static Table) -> Value {
    let knobs = (table.knobs)();
    let mut properties: Map<_, _> =
        knobs.iter().map(|knob| (knob.name().to_owned(), of_knob(*knob))).collect();
    for inner in table.tables {
        properties.insert(inner.name.to_owned(), of_inner(inner));
    }
    let required = knobs.iter().filter(|knob| matches!(knob.absent(), Absent::Required));
    let inner = table.tables.iter().filter(|inner| *inner.count.start() > 0);
    let required: Vec<_> =
        required.map(|knob| knob.name()).chain(inner.map(|inner| inner.name)).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !table.doc.is_empty() {
        schema["description"] = json!(table.doc.trim_start());
    }
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if !table.has_free_keys {
        schema["additionalProperties"] = json!(false);
    }
    let has = |params: &Table| table.tables.iter().any(|inner| std::ptr::eq(*inner, params));
    if has(&POOL_PARAMS) {
        schema["allOf"] = of_params(&POLICIES, &knobs, "policy");
    } else if has(&PARAMS) || has(&SHADOW_PARAMS) {
        schema["allOf"] = of_params(&LAWS, &knobs, "law");
    }
    schema
}

/// Returns the schema of an inner table, or of an array of tables if the table can be repeated.
fn of_inner(table: &'static Table) -> Value {
    let own = of_table(table);
    if !table.is_repeated() {
        return own;
    }
    let (least, most) = (table.count.start(), table.count.end());
    json!({
        "type": "array",
        "minItems": least,
        "maxItems": most,
        "description": own["description"],
        "items": own,
    })
}

fn of_knob(knob: &dyn Documented) -> Value {
    let mut schema = knob.schema();
    let mut description = knob.doc().to_owned();
    match knob.absent() {
        Absent::Required => {}
        Absent::Default(text) => schema["default"] = default(text),
        Absent::Means(what) => description += &format!(" If absent: {what}."),
    }
    if let Some(reload) = knob.reload() {
        description += &format!(" Changes apply {reload}.");
    }
    schema["description"] = json!(description);
    schema
}

/// Converts the default of a key from TOML text to JSON.
fn default(text: &str) -> Value {
    let value = DeValue::parse(text).expect("a default is TOML: tested for every knob");
    of_toml(value.get_ref())
}

fn of_toml(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => json!(text),
        DeValue::Boolean(flag) => json!(flag),
        DeValue::Array(items) => items.iter().map(|item| of_toml(item.get_ref())).collect(),
        DeValue::Integer(number) => json!(number.as_str().replace('_', "").parse::<i64>().ok()),
        DeValue::Float(number) => json!(number.as_str().replace('_', "").parse::<f64>().ok()),
        DeValue::Datetime(_) | DeValue::Table(_) => unreachable!("no default is one"),
    }
}

/// Returns the schemas of the parameters of all registry entries. The schema of an entry, such as a
/// law, applies if `key` has the name of this entry as its value.
fn of_params<K: Kind>(registry: &Registry<K>, knobs: &[&dyn Documented], key: &str) -> Value {
    let chooser = knobs.iter().find(|knob| knob.name() == key).expect("it is a key of the table");
    let usual = match chooser.absent() {
        Absent::Default(text) => default(text),
        Absent::Required | Absent::Means(_) => Value::Null,
    };
    let words = chooser.schema()["enum"].as_array().cloned().unwrap_or_default();
    let of_word = |word: &Value| {
        let entry = word.as_str().and_then(|name| registry.find(name));
        let params = entry.map_or(&[][..], |entry| entry.params);
        let chosen = json!({ "properties": { key: { "const": word } }, "required": [key] });
        let condition = if *word == usual {
            json!({ "anyOf": [chosen, { "not": { "required": [key] } }] })
        } else {
            chosen
        };
        let of_param = |param: &&Param| (param.name.to_owned(), of_param(param));
        let properties: Map<_, _> = params.iter().map(of_param).collect();
        let table = json!({ "properties": properties, "additionalProperties": false });
        json!({ "if": condition, "then": { "properties": { "params": table } } })
    };
    words.iter().map(of_word).collect()
}

fn of_param(param: &Param) -> Value {
    let mut schema = match param.range {
        Range::Real(min, max) => Real(min..=max).schema(),
        Range::Whole(min, max) => Whole(min..=max).schema(),
    };
    schema["default"] = match param.range {
        Range::Real(..) => json!(param.default),
        Range::Whole(..) => json!(param.default as u32),
    };
    schema["description"] = json!(format!("{} ({}).", param.doc.trim_end_matches('.'), param.unit));
    schema
}
