use std::borrow::Cow;

/// transformers' tags and the ones in their place: they trim white space in the same way.
const TAGS: [(&str, &str); 2] = [("generation", "with"), ("endgeneration", "endwith")];

/// Puts tags that minijinja knows in place of `{% generation %}…{% endgeneration %}`. No line break moves.
pub fn replaced(source: &str) -> Cow<'_, str> {
    if !source.contains(TAGS[0].0) {
        return Cow::Borrowed(source);
    }
    Cow::Owned(rewritten(source, tag_in_place_of))
}

/// The template with the value of each `{% set name = value %}` before it, for minijinja's list of the variables that
/// are read: `{% set x = x | default(1) %}` alone would not count as reading `x`.
pub fn read_before_set(source: &str) -> String {
    rewritten(source, |tag| match value_of_set(tag) {
        Some(value) => Cow::Owned(format!("{{{{ [{value}] }}}}{tag}")),
        None => Cow::Borrowed(tag),
    })
}

fn value_of_set(tag: &str) -> Option<&str> {
    let (target, value) = inside(tag)?.strip_prefix("set")?.split_once('=')?;
    let is_of_target =
        |it: char| it.is_alphanumeric() || it.is_whitespace() || "_.,()".contains(it);
    target.chars().all(is_of_target).then_some(value)
}

fn rewritten(source: &str, in_place_of: impl Fn(&str) -> Cow<'_, str>) -> String {
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
    let (bytes, mut quote, mut at) = (tag.as_bytes(), None, 2);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'\'' | b'"')) => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(close) => return at + 2,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
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
        ] {
            assert_eq!(replaced(source), expected, "{source}");
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
        ] {
            assert_eq!(read_before_set(source), expected, "{source}");
        }
    }
}
