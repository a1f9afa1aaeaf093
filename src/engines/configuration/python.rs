//! Python literals as `pprint` prints them: dictionaries, lists, tuples, texts, numbers, None, True, False.

use crate::engines::configuration::{refused::Refused, yaml};
use serde_json::{Map, Value};

/// Also returns the number of lines. Errors: no literal, with its line from 1; more nodes or levels than YAML may have.
pub fn literal(text: &str) -> Result<(Value, usize), Refused> {
    let mut reader = PythonReader { text, at: 0, nodes: 0 };
    let value = reader.value(0).map_err(|what| Refused::at(reader.line(), &what))?;
    Ok((value, reader.line()))
}

struct PythonReader<'a> {
    text: &'a str,
    /// Byte.
    at: usize,
    nodes: usize,
}

impl PythonReader<'_> {
    fn line(&self) -> usize {
        self.text[..self.at].matches('\n').count() + 1
    }

    fn rest(&mut self) -> &str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn takes(&mut self, mark: char) -> bool {
        let found = self.rest().starts_with(mark);
        self.at += if found { mark.len_utf8() } else { 0 };
        found
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        self.nodes += 1;
        if self.nodes > yaml::MOST_NODES || depth > yaml::MOST_DEPTH {
            return Err("it is larger or deeper than a configuration is".to_string());
        }
        if self.takes('{') {
            let mut all = Map::new();
            while !self.takes('}') {
                let key = match self.value(depth + 1)? {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                if !self.takes(':') {
                    return Err(format!("expected a colon after {key:?}"));
                }
                all.insert(key, self.value(depth + 1)?);
                self.goes_on('}')?;
            }
            return Ok(Value::Object(all));
        }
        for (first, last) in [('[', ']'), ('(', ')')] {
            if !self.takes(first) {
                continue;
            }
            let (mut all, mut commas) = (Vec::new(), 0);
            while !self.takes(last) {
                all.push(self.value(depth + 1)?);
                commas += usize::from(self.goes_on(last)?);
            }
            // Brackets around one value, as around a text of several lines.
            return Ok(match (first, commas, all.len()) {
                ('(', 0, 1) => all.swap_remove(0),
                _ => Value::Array(all),
            });
        }
        if self.rest().starts_with(['\'', '"']) {
            let mut text = String::new();
            while self.rest().starts_with(['\'', '"']) {
                self.quoted(&mut text)?;
            }
            return Ok(text.into());
        }
        let rest = self.rest();
        let end = rest.find(|it: char| !(it.is_alphanumeric() || "+-._".contains(it)));
        let word = rest[..end.unwrap_or(rest.len())].to_string();
        self.at += word.len();
        match word.as_str() {
            "None" => Ok(Value::Null),
            "True" => Ok(true.into()),
            "False" => Ok(false.into()),
            "inf" | "nan" | "-inf" => Ok(word.into()),
            _ => match yaml::plain(&word) {
                Ok(number @ Value::Number(_)) => Ok(number),
                _ => Err(format!("{word:?} is no value of Python")),
            },
        }
    }

    /// A comma; otherwise the end must follow.
    fn goes_on(&mut self, last: char) -> Result<bool, String> {
        if self.takes(',') {
            Ok(true)
        } else if self.rest().starts_with(last) {
            Ok(false)
        } else {
            Err(format!("expected a comma or {last}"))
        }
    }

    fn quoted(&mut self, into: &mut String) -> Result<(), String> {
        let mut all = self.text[self.at..].chars();
        let mark = all.next();
        loop {
            let next = all.next();
            match next {
                _ if next == mark => break,
                None | Some('\n') => return Err("a text has no end in its line".to_string()),
                Some('\\') => into.push(match all.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some(kind @ ('x' | 'u' | 'U')) => {
                        let digits = match kind {
                            'x' => 2,
                            'u' => 4,
                            _ => 8,
                        };
                        let code: String = all.by_ref().take(digits).collect();
                        let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                        code.ok_or("an escape is no character")?
                    }
                    Some(other) => other,
                    None => return Err("a text has no end".to_string()),
                }),
                Some(other) => into.push(other),
            }
        }
        self.at = self.text.len() - all.as_str().len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_printed_dictionary_is_read() {
        let text = "{'a': {'b': None, 'c': [1e-06, -1, True]},\n 'd': ('one '\n       \"it's\"), 'e': (), 'f': (1,)}\nlog";
        let (found, lines) = literal(text).unwrap();
        let asked =
            json!({"a": {"b": null, "c": [1e-6, -1, true]}, "d": "one it's", "e": [], "f": [1]});
        assert_eq!((found, lines), (asked, 3));
        for text in ["{'a': <object>}", "{'a'", "{'a': 'x\n'}", "{'a': f(1)}"] {
            assert!(literal(text).is_err(), "{text}");
        }
        assert!(literal(&"[".repeat(100_000)).is_err());
    }
}
