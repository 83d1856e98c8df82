// SPDX-License-Identifier: Apache-2.0
//! A configuration that Envoy hands on as a `google.protobuf.Struct`.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use accepted::ACCEPTED;
use rejected::{REJECTED, message};

/// `value` as Envoy hands on a `google.protobuf.Value`.
fn protobuf(value: &serde_json::Value) -> Vec<u8> {
    fn delimited(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length > 0x7f {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend(bytes);
        out
    }
    fn object(fields: &serde_json::Map<String, serde_json::Value>) -> Vec<u8> {
        let entry = |(name, value): (&String, &serde_json::Value)| {
            delimited(1, &[delimited(1, name.as_bytes()), delimited(2, &self::protobuf(value))].concat())
        };
        fields.iter().flat_map(entry).collect()
    }
    use serde_json::Value;
    match value {
        Value::Null => vec![0x08, 0],
        Value::Number(number) => [&[0x11][..], &number.as_f64().unwrap().to_le_bytes()].concat(),
        Value::String(text) => delimited(3, text.as_bytes()),
        Value::Bool(flag) => vec![0x20, u8::from(*flag)],
        Value::Object(fields) => delimited(5, &object(fields)),
        Value::Array(items) => {
            delimited(6, &items.iter().flat_map(|item| delimited(1, &protobuf(item))).collect::<Vec<_>>())
        }
    }
}

/// A configuration as Envoy hands on a `google.protobuf.Struct`: the fields of the value, without what is around.
fn message_of(text: &str) -> Option<Vec<u8>> {
    let value = protobuf(&serde_json::from_str(text).ok()?);
    let length = value.iter().skip(1).position(|byte| byte & 0x80 == 0)? + 2;
    Some(value[length..].to_vec())
}

#[test]
fn a_struct_is_read_like_its_json() {
    for (row, text) in ACCEPTED {
        let loaded = Config::parse(&message_of(&json(text)).unwrap());
        assert_eq!(format!("{loaded:?}"), format!("{:?}", Config::parse(json(text).as_bytes())), "{row}");
    }
    let rows = REJECTED.iter().filter(|(row, text, _)| {
        // A map has no name twice, its numbers are alike and may be strings, and a message without fields has no bytes.
        let apart = [
            "a field twice",
            "tiers of one name",
            "no policies",
            "numbers that are not whole, in range",
            "wrong types",
        ];
        text.starts_with('{')
            && !apart.contains(row)
            && serde_json::from_str::<serde_json::Value>(&json(text)).is_ok()
    });
    for (row, text, _) in rows {
        let mut of_struct = Config::parse(&message_of(&json(text)).unwrap()).unwrap_err();
        let mut of_json = Config::parse(json(text).as_bytes()).unwrap_err();
        // The order of a map's entries and the spelling of its numbers are lost.
        for errors in [&mut of_struct, &mut of_json] {
            errors.sort_by(|one, other| one.path.cmp(&other.path));
            errors.iter_mut().for_each(|error| error.found = error.found.replace("1000.0", "1000"));
        }
        let paths = |errors: &[weir::config::ConfigError]| {
            errors.iter().map(|error| error.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(paths(&of_struct), paths(&of_json), "{row}");
    }
}

/// It has more bytes than its JSON, whose length is bounded.
#[test]
fn a_struct_loads_whose_json_is_as_long_as_it_may_be() {
    let networks = vec!["10.0.0.0/8"; 1_024];
    let deny = vec![serde_json::json!({ "client_address": networks }); 78];
    let mut whole: serde_json::Value = serde_json::from_str(&json(ACCEPTED[0].1)).unwrap();
    whole["deny"] = deny.into();
    let text = whole.to_string();
    let message = message_of(&text).unwrap();
    assert!(
        text.len() <= weir::config::MAX_LENGTH && message.len() > weir::config::MAX_LENGTH,
        "{}",
        text.len()
    );
    assert!(Config::parse(text.as_bytes()).is_ok());
    assert!(Config::parse(&message).is_ok());
    assert!(Config::parse(&vec![b'\n'; 2 * weir::config::MAX_LENGTH]).is_err());
}

#[test]
fn a_count_may_be_text() {
    let text = r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "fixed_window", "limit": "L", "window": "1d"}]}]}"#;
    let loaded = |limit: &str| {
        let text = text.replace('L', limit);
        let quota = |config: Config| config.policies[0].tiers.tiers[0].views[0].quota(1, 0);
        let [of_struct, of_json] = [message_of(&text).unwrap(), text.into_bytes()]
            .map(|text| Config::parse(&text).map(quota).map_err(|errors| errors[0].to_string()));
        assert_eq!(of_struct, of_json, "{limit}");
        of_json
    };
    assert_eq!(loaded("5"), Ok(5));
    assert_eq!(loaded("1000000000000"), Ok(1_000_000_000_000));
    assert_eq!(loaded("50_000"), Ok(50_000));
    assert_eq!(loaded("10k"), Ok(10_000));
    assert_eq!(loaded("2_500M"), Ok(2_500_000_000));
    assert_eq!(loaded("1G"), Ok(1_000_000_000));
    let allowed = message("allowed: a whole number from 1 to 1000000000000COUNT");
    for wrong in ["1000000000001", "many"] {
        assert_eq!(loaded(wrong), Err(format!("policies[0].limits[0].limit: found {wrong:?}, {allowed}")));
    }
}

#[test]
fn a_struct_cut_short_does_not_load() {
    let whole = message_of(&json(ACCEPTED[0].1)).unwrap();
    assert!(Config::parse(&whole).is_ok());
    for length in 0..whole.len() {
        assert!(Config::parse(&whole[..length]).is_err(), "{length} bytes of {}", whole.len());
    }
}

/// The hash of a configuration is that of what it says, and not of how that is written.
#[test]
fn the_hash_names_what_a_configuration_says() {
    let hash = |rest: &str, limit: &str| {
        let text = format!(r#"{{{rest} "policies": [{{"name": "p", "limits": [{limit}]}}]}}"#);
        Config::parse(text.as_bytes()).expect("a configuration").hash
    };
    let plain = hash("", r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}"#);
    assert_eq!(
        plain,
        hash("", r#"{"rate":"1/s",  "algorithm": "leaky_bucket", "name": "l"}"#),
        "another order"
    );
    let others = [
        hash("", r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "2/s"}"#),
        hash("", r#"{"name": "leaky_bucket", "algorithm": "leaky_bucket", "rate": "1/s"}"#),
        hash("", r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 2}"#),
        hash(r#""journal": {},"#, r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}"#),
    ];
    assert!(others.iter().all(|other| *other != plain), "{plain} {others:?}");
}
