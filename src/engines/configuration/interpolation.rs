//! OmegaConf's `${…}`: other keys, and `oc.select`. Other resolvers and absent keys stay as written, as unknown.

use crate::engines::configuration::{refused::Refused, yaml};
use serde_json::{Map, Value};

const MOST_STEPS: usize = 32;
const MOST_BYTES: usize = 8 << 20;

/// The trainer's value is unknown.
pub fn is_open(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text == "???" || text.contains("${"))
}

/// Fills in interpolations. Errors: a configuration that grows beyond all limits.
pub fn resolved(root: &Value) -> Result<Value, Refused> {
    let mut resolver = Resolver { root, bytes: 0 };
    let found = resolver.tree(root, &mut Vec::new(), 0);
    if resolver.bytes > MOST_BYTES {
        Err(Refused { line: None, what: "what its ${…} stand for has no end".to_string() })
    } else {
        Ok(found)
    }
}

/// What a text at `path` stands for in `root`; `None` where that is unknown.
pub fn filled(root: &Value, text: &str, path: &[String]) -> Option<Value> {
    Resolver { root, bytes: 0 }.text(text, path, 0)
}

struct Resolver<'a> {
    root: &'a Value,
    bytes: usize,
}

impl Resolver<'_> {
    /// `value` is at `path`.
    fn tree(&mut self, value: &Value, path: &mut Vec<String>, steps: usize) -> Value {
        match value {
            Value::Object(all) => {
                let mut found = Map::new();
                for (key, value) in all {
                    path.push(key.clone());
                    found.insert(key.clone(), self.tree(value, path, steps));
                    path.pop();
                }
                Value::Object(found)
            }
            Value::Array(all) => {
                path.push(String::new());
                let found = all.iter().map(|value| self.tree(value, path, steps)).collect();
                path.pop();
                Value::Array(found)
            }
            Value::String(text) if text.contains("${") => {
                self.text(text, path, steps).unwrap_or_else(|| value.clone())
            }
            other => {
                self.bytes += 8;
                other.clone()
            }
        }
    }

    fn text(&mut self, text: &str, path: &[String], steps: usize) -> Option<Value> {
        if steps > MOST_STEPS || self.bytes > MOST_BYTES {
            return None;
        }
        let (mut filled, mut rest) = (String::new(), text);
        while let Some(begin) = rest.find("${") {
            let length = closing(&rest[begin + 2..])?;
            let value = self.expression(&rest[begin + 2..begin + 2 + length], path, steps)?;
            if begin == 0 && filled.is_empty() && rest.len() == length + 3 {
                return Some(value);
            }
            filled += &rest[..begin];
            filled += &match value {
                Value::String(text) => text,
                Value::Bool(it) => if it { "True" } else { "False" }.to_string(),
                Value::Null => "None".to_string(),
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            self.bytes += filled.len();
            rest = &rest[begin + 3 + length..];
        }
        Some((filled + rest).into())
    }

    fn expression(&mut self, body: &str, path: &[String], steps: usize) -> Option<Value> {
        let Some((name, arguments)) = body.split_once(':') else {
            return self.key(body.trim(), path, steps);
        };
        if name.trim() != "oc.select" {
            return None;
        }
        let (key, default) = match arguments.split_once(',') {
            Some((key, default)) => (key, default.trim()),
            None => (arguments, "null"),
        };
        match self.key(key.trim(), path, steps) {
            Some(found) if found != "???" => return Some(found),
            _ if self.place(key.trim(), path).is_some_and(|(value, _)| value != "???") => {
                return None;
            }
            _ => {}
        }
        match default {
            "{}" => Some(Value::Object(Map::new())),
            "[]" => Some(Value::Array(Vec::new())),
            _ if default.starts_with("${") => self.text(default, path, steps + 1),
            _ if default.contains(['$', '{', '[', '\\']) => None,
            _ if default.starts_with(['"', '\'']) => Some(default.trim_matches(['"', '\'']).into()),
            _ => yaml::plain(default).ok(),
        }
    }

    /// Returns value and path. A leading dot is the table around the interpolation.
    fn place(&self, key: &str, path: &[String]) -> Option<(Value, Vec<String>)> {
        let up = key.len() - key.trim_start_matches('.').len();
        let base = if up == 0 { &[][..] } else { path.get(..path.len().checked_sub(up)?)? };
        let parts = key[up..].split('.').filter(|part| !part.is_empty()).map(str::to_string);
        let place: Vec<String> = base.iter().cloned().chain(parts).collect();
        let found = place.iter().try_fold(self.root, |value, part| value.get(part.as_str()))?;
        Some((found.clone(), place))
    }

    fn key(&mut self, key: &str, path: &[String], steps: usize) -> Option<Value> {
        if steps > MOST_STEPS || self.bytes > MOST_BYTES || key.contains(['[', '$']) {
            return None;
        }
        let (value, mut place) = self.place(key, path)?;
        let found = self.tree(&value, &mut place, steps + 1);
        Some(found).filter(|found| !found.as_str().is_some_and(|text| text.contains("${")))
    }
}

/// Length up to the closing brace.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.find(|mark: char| {
        depth += i32::from(mark == '{') - i32::from(mark == '}');
        depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_filled_in_and_the_rest_stays_open() {
        let root = json!({"a": {"n": 4, "same": "${.n}", "up": "${..b}", "env": "${oc.env:HOME}"}, "b": 7,
            "c": "${oc.select:a.n,1}", "d": "${oc.select:z.z,null}", "e": "run-${b}-${a.same}",
            "f": "${oc.select:z,${oc.select:b,2}}", "g": "${missing}", "h": "${h}", "i": "${oc.select:z, false}"});
        let found = resolved(&root).unwrap();
        let asked = json!({"a": {"n": 4, "same": 4, "up": 7, "env": "${oc.env:HOME}"}, "b": 7, "c": 4, "d": null,
            "e": "run-7-4", "f": 7, "g": "${missing}", "h": "${h}", "i": false});
        assert_eq!(found, asked);
        assert!(is_open(&found["g"]) && !is_open(&found["e"]));
        let mut bomb = Map::new();
        bomb.insert("k0".to_string(), "x".repeat(100).into());
        for level in 1..30 {
            let text = format!("${{k{}}}", level - 1).repeat(10);
            bomb.insert(format!("k{level}"), text.into());
        }
        assert!(resolved(&Value::Object(bomb)).is_err());
    }
}
