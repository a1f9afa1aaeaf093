use minijinja::{Error as JinjaError, ErrorKind};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// transformers' tags and the ones in their place: they trim white space in the same way.
const TAGS: [(&str, &str); 2] = [("generation", "with"), ("endgeneration", "endwith")];

const ESCAPES: [(&str, &str); 11] = [
    ("\n", ""),
    ("\\", "\\"),
    ("'", "'"),
    ("\"", "\""),
    ("a", "\x07"),
    ("b", "\x08"),
    ("f", "\x0c"),
    ("n", "\n"),
    ("r", "\r"),
    ("t", "\t"),
    ("v", "\x0b"),
];

const BLOCKS: [&str; 8] = ["if", "for", "macro", "call", "filter", "with", "block", "autoescape"];

/// The template in minijinja's tags for `{% generation %}`, with lists to loop over and texts as Python reads them.
pub fn replaced(source: &str) -> Result<String, JinjaError> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut unread = None;
    let text = rewritten(&source, |tag| {
        if tag.starts_with("{#") || end_of_expression(tag) < tag.len() {
            return Cow::Borrowed(tag);
        }
        let tag = tag_in_place_of(tag);
        let tag = with_list(&tag).map_or(tag, Cow::Owned);
        if !tag.contains('\\') {
            return tag;
        }
        match with_python_texts(&tag) {
            Ok(tag) => Cow::Owned(tag),
            Err(text) => {
                unread.get_or_insert(text);
                tag
            }
        }
    });
    let Some(unread) = unread else { return Ok(text) };
    let reason =
        format!("an escape of the text `{unread}` stands for no character that is read here");
    Err(JinjaError::new(ErrorKind::BadEscape, reason))
}

fn with_python_texts(tag: &str) -> Result<String, String> {
    let (mut text, mut rest) = (String::new(), tag);
    while let Some(start) = rest.find(['\'', '"']) {
        let (quote, mut is_escaped) = (&rest[start..=start], false);
        let end = rest[start + 1..].find(|it: char| {
            let ends = !is_escaped && quote.starts_with(it);
            is_escaped = !is_escaped && it == '\\';
            ends
        });
        let end = end.map_or(rest.len(), |length| start + 1 + length);
        let literal = &rest[start + 1..end];
        let read = unescaped(literal).ok_or_else(|| literal.to_string())?;
        let read = read.replace('\\', "\\\\").replace('\n', "\\n");
        let read = read.replace(quote, &format!("\\{quote}"));
        let lines = "\n".repeat(literal.matches('\n').count());
        text.extend([&rest[..start], quote, &read, quote, &lines]);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    Ok(text + rest)
}

/// As Jinja2 reads it: `encode("ascii", "backslashreplace").decode("unicode-escape")`.
fn unescaped(literal: &str) -> Option<String> {
    let ascii = literal.chars().map(|it| match u32::from(it) {
        0..0x80 => it.to_string(),
        code @ 0x80..0x100 => format!("\\x{code:02x}"),
        code @ 0x100..0x10000 => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    });
    let ascii = ascii.collect::<String>();
    let (mut text, mut rest) = (String::new(), &ascii[..]);
    while let Some((before, escape)) = rest.split_once('\\') {
        text.push_str(before);
        let is_octal = |it: &u8| (b'0'..=b'7').contains(it);
        let (start, length, radix) = match escape.as_bytes().first()? {
            b'x' => (1, 2, 16),
            b'u' => (1, 4, 16),
            b'U' => (1, 8, 16),
            b'0'..=b'7' => (0, escape.bytes().take(3).take_while(is_octal).count(), 8),
            b'N' => return None,
            _ => {
                let known = ESCAPES.iter().find(|(letter, _)| escape.starts_with(letter));
                text.push_str(known.map_or("\\", |(_, stood_for)| stood_for));
                rest = &escape[known.map_or(0, |_known| 1)..];
                continue;
            }
        };
        let digits = escape.get(start..start + length).filter(|it| !it.starts_with('+'))?;
        text.push(char::from_u32(u32::from_str_radix(digits, radix).ok()?)?);
        rest = &escape[start + length..];
    }
    Some(text + rest)
}

fn with_list(tag: &str) -> Option<String> {
    let code = inside(tag).filter(|code| place_of(code, "for") == Some(0))?;
    let start = place_of(code, "in")? + "in".len();
    let ends = ["if", "recursive"].into_iter().filter_map(|it| place_of(&code[start..], it));
    let end = ends.min().map_or(code.len(), |length| start + length);
    let list = format!("{}({})|list {}", &code[..start], &code[start..end], &code[end..]);
    Some(tag.replacen(code, &list, 1))
}

fn is_of_name(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

fn place_of(code: &str, word: &str) -> Option<usize> {
    let is_word = |place: usize| {
        let rest = code.get(place..).and_then(|rest| rest.strip_prefix(word));
        rest.is_some_and(|rest| {
            !rest.starts_with(is_of_name) && !code[..place].ends_with(is_of_name)
        })
    };
    outside(code).find(|(place, depth)| *depth == 0 && is_word(*place)).map(|(place, _)| place)
}

#[derive(Default)]
struct Block {
    set: BTreeSet<String>,
    earlier: Option<BTreeSet<String>>,
    has_else: bool,
    raises: bool,
}

impl Block {
    fn end_branch(&mut self) {
        let set = std::mem::take(&mut self.set);
        if std::mem::take(&mut self.raises) {
            return;
        }
        self.earlier = Some(self.earlier.take().map_or(set.clone(), |earlier| &earlier & &set));
    }
}

/// The template with the value of each `{% set name = value %}` before it, for minijinja's list of the variables that
/// are read: `{% set x = x | default(1) %}` alone would not count as reading `x`. What each branch sets is set behind them.
pub fn read_before_set(source: &str) -> String {
    let (mut open, mut block) = (Vec::new(), Block::default());
    rewritten(source, |tag| {
        let code = inside(tag).unwrap_or_default();
        let word = code.split(|it| !is_of_name(it)).next().unwrap_or_default();
        let value = value_of_set(tag);
        if word == "set" {
            let target = code["set".len()..].split(['=', '|']).next().unwrap_or_default();
            let names = target.split([',', '(', ')']).map(str::trim);
            block.set.extend(names.filter(|it| !it.contains('.')).map(str::to_string));
        }
        let begins = tag.trim_start_matches(['{', '-', '+', ' ']).starts_with("raise_exception(");
        block.raises |= begins && place_of(tag.trim_start_matches('{'), "if").is_none();
        if BLOCKS.contains(&word) || word == "set" && value.is_none() {
            open.push(std::mem::take(&mut block));
        } else if matches!(word, "elif" | "else") {
            block.end_branch();
            block.has_else |= word == "else";
        } else if word.starts_with("end") {
            block.end_branch();
            let ended = std::mem::replace(&mut block, open.pop().unwrap_or_default());
            let names = ended.earlier.filter(|_| word == "endif" && ended.has_else);
            let names = names.unwrap_or_default();
            let sets = names.iter().map(|name| format!("{{% set {name} = 0 %}}"));
            let text = sets.fold(tag.to_string(), |text, set| text + &set);
            block.set.extend(names);
            return Cow::Owned(text);
        }
        match value {
            Some(value) => Cow::Owned(format!("{{{{ [{value}] }}}}{tag}")),
            None => Cow::Borrowed(tag),
        }
    })
}

fn value_of_set(tag: &str) -> Option<&str> {
    let (target, value) = inside(tag)?.strip_prefix("set")?.split_once('=')?;
    let is_of_target = |it: char| is_of_name(it) || it.is_whitespace() || ".,()".contains(it);
    target.chars().all(is_of_target).then_some(value)
}

fn rewritten(source: &str, mut in_place_of: impl FnMut(&str) -> Cow<'_, str>) -> String {
    let (mut text, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(start) = ["{{", "{%", "{#"].iter().filter_map(|tag| rest.find(tag)).min() {
        let tag = &rest[start..];
        let end = end(tag);
        text.push_str(&rest[..start]);
        text.push_str(&in_place_of(&tag[..end]));
        rest = &tag[end..];
    }
    text.push_str(rest);
    text
}

/// Where a tag or a comment ends; a raw block is one with what it holds.
fn end(tag: &str) -> usize {
    let behind = |end: &str| tag.find(end).map_or(tag.len(), |place| place + end.len());
    if tag.starts_with("{#") {
        return behind("#}");
    }
    let end = end_of_expression(tag);
    if inside(&tag[..end]) != Some("raw") {
        return end;
    }
    let blocks = tag[end..].match_indices("{%").map(|(place, _)| end + place);
    let endings = blocks.map(|place| (place, place + end_of_expression(&tag[place..])));
    let mut endings = endings.filter(|(place, end)| inside(&tag[*place..*end]) == Some("endraw"));
    endings.next().map_or(tag.len(), |(_, end)| end)
}

/// The end of `{% … %}` or `{{ … }}`; texts in it may hold anything.
fn end_of_expression(tag: &str) -> usize {
    let close = if tag.starts_with("{%") { b"%}" } else { b"}}" };
    let is_end = |(place, depth): &(usize, u32)| {
        *depth == 0 && tag.as_bytes()[2 + place..].starts_with(close)
    };
    outside(&tag[2..]).find(is_end).map_or(tag.len(), |(place, _)| 2 + place + close.len())
}

fn outside(code: &str) -> impl Iterator<Item = (usize, u32)> {
    let (mut quote, mut depth, mut at) = (None, 0_u32, 0);
    std::iter::from_fn(move || {
        loop {
            let (place, byte, before) = (at, *code.as_bytes().get(at)?, depth);
            at += 1;
            match (quote, byte) {
                (Some(_), b'\\') => at += 1,
                (Some(open), byte) if byte == open => quote = None,
                (Some(_), _) => {}
                (None, b'\'' | b'"') => quote = Some(byte),
                (None, _) => {
                    match byte {
                        b'(' | b'[' | b'{' => depth += 1,
                        b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    return Some((place, before));
                }
            }
        }
    })
}

fn inside(tag: &str) -> Option<&str> {
    let inside = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside);
    Some(inside.strip_suffix(['-', '+']).unwrap_or(inside).trim())
}

fn tag_in_place_of(tag: &str) -> Cow<'_, str> {
    match TAGS.iter().find(|(theirs, _)| inside(tag) == Some(*theirs)) {
        Some((theirs, ours)) => Cow::Owned(tag.replace(theirs, ours)),
        None => Cow::Borrowed(tag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tags_themselves_are_replaced() {
        for (source, expected) in [
            ("a{%- generation %}b{% endgeneration -%}", "a{%- with %}b{% endwith -%}"),
            ("{%\n generation\n%}", "{%\n with\n%}"),
            ("{# {% generation %} #}generation", "{# {% generation %} #}generation"),
            ("{% raw %}{% generation %}{% endraw %}", "{% raw %}{% generation %}{% endraw %}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            (r#"{{ "\"{% generation %}" }}"#, r#"{{ "\"{% generation %}" }}"#),
            ("{% set generation = 1 %}", "{% set generation = 1 %}"),
            ("{% generation %", "{% generation %"),
            ("{% raw %}{% generation %}", "{% raw %}{% generation %}"),
            ("{# {% generation %}", "{# {% generation %}"),
            ("{% if é %}{% generation %}", "{% if é %}{% with %}"),
            ("{{ {'a':{}}['}}'] }}{% generation %}", "{{ {'a':{}}['}}'] }}{% with %}"),
            ("a\r\n{{ 'b\rc' }}\r", "a\n{{ 'b\nc' }}\n"),
            (
                "{%- for x in (y if z) if 'if' in x recursive -%}",
                "{%- for x in( (y if z) )|list if 'if' in x recursive -%}",
            ),
            (
                "{% for a, b in c.items() %}{# for x in y #}",
                "{% for a, b in( c.items())|list  %}{# for x in y #}",
            ),
            (
                "{# '\\a' #}{% raw %}'\\a'{% endraw %}'\\a'",
                "{# '\\a' #}{% raw %}'\\a'{% endraw %}'\\a'",
            ),
        ] {
            assert_eq!(replaced(source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn a_value_is_read_before_it_is_set() {
        for (source, expected) in [
            (
                "{%- set x = x | default(1) -%}",
                "{{ [ x | default(1)] }}{%- set x = x | default(1) -%}",
            ),
            ("{% set ns.a, b = c, d %}", "{{ [ c, d] }}{% set ns.a, b = c, d %}"),
            ("{% set x | f(a=1) %}y{% endset %}", "{% set x | f(a=1) %}y{% endset %}"),
            ("{% raw %}{% set x = 1 %}{% endraw %}", "{% raw %}{% set x = 1 %}{% endraw %}"),
            ("{{ '{% set x = 1 %}' }}", "{{ '{% set x = 1 %}' }}"),
            (
                "{% if a %}{% set x %}{% endset %}{% elif b %}{% set x, y = c %}{% else %}{% set x = 1 %}{% endif %}",
                "{% if a %}{% set x %}{% endset %}{% elif b %}{{ [ c] }}{% set x, y = c %}{% else %}{{ [ 1] }}{% set x = 1 %}{% endif %}{% set x = 0 %}",
            ),
        ] {
            assert_eq!(read_before_set(source), expected, "{source}");
        }
    }
}
