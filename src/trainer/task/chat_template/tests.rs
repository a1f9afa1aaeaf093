use super::*;
use crate::experiment::PromptExample;
use serde_json::json;

#[derive(Deserialize)]
struct Rendered {
    conversation: String,
    add_generation_prompt: bool,
    text: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Published {
    tokens: BTreeMap<String, String>,
    template: String,
    rendered: Vec<Rendered>,
}

#[derive(Deserialize)]
struct Golden {
    conversations: BTreeMap<String, Vec<Message>>,
    templates: BTreeMap<String, Published>,
}

fn golden() -> Golden {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("golden/chat-template/templates.json");
    files::read_json(&path).unwrap()
}

#[derive(Deserialize)]
struct Case {
    system: Option<String>,
    examples: Vec<PromptExample>,
    response_prefix: String,
    texts: BTreeMap<String, Option<String>>,
}

#[derive(Deserialize)]
struct Continued {
    question: String,
    smollm2_template: String,
    cases: Vec<Case>,
}

/// A model folder with this `tokenizer_config.json`.
fn folder(config: &serde_json::Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files::write_json(&folder.path().join("tokenizer_config.json"), config).unwrap();
    folder
}

fn of(template: &str) -> Result<ChatTemplate, String> {
    let folder = folder(&json!({"chat_template": template}));
    match ChatTemplate::load(folder.path()) {
        Ok(template) => Ok(template.unwrap()),
        Err(error) => Err(error.to_string().replace(&format!("{}/", folder.path().display()), "")),
    }
}

fn user(content: &str) -> [Message; 1] {
    [Message { role: "user".into(), content: content.into() }]
}

#[test]
fn published_templates_render_as_transformers_renders_them() {
    let golden = golden();
    assert!(golden.templates.len() >= 6);
    let mut compared = 0;
    for (name, published) in &golden.templates {
        let mut config = json!({"chat_template": published.template});
        for (token, text) in &published.tokens {
            config[token] = json!({"content": text, "lstrip": false});
        }
        let template = ChatTemplate::load(folder(&config).path()).unwrap().unwrap();
        for expected in &published.rendered {
            let messages = &golden.conversations[&expected.conversation];
            let rendered = template.render(messages, expected.add_generation_prompt);
            let place = format!("{name}, {}", expected.conversation);
            match (&expected.text, &expected.error) {
                (Some(text), _) => assert_eq!(&rendered.unwrap(), text, "{place}"),
                (None, error) => {
                    let refusal = rendered.unwrap_err().to_string();
                    assert!(refusal.contains(error.as_deref().unwrap()), "{place}: {refusal}");
                }
            }
            compared += 1;
        }
    }
    assert!(compared >= 100, "{compared} renderings");
}

#[test]
fn a_turn_that_the_assistant_has_begun_goes_on_as_in_transformers() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("golden/chat-template/continued.json");
    let golden: Continued = files::read_json(&path).unwrap();
    let mut templates = self::golden().templates;
    let (template, tokens, rendered) = (golden.smollm2_template, BTreeMap::new(), Vec::new());
    templates.insert("smollm2".to_string(), Published { tokens, template, rendered });
    let message =
        |role: &str, content: &String| Message { role: role.into(), content: content.clone() };
    let mut refused = 0;
    for case in &golden.cases {
        let mut messages: Vec<Message> =
            case.system.iter().map(|text| message("system", text)).collect();
        for PromptExample { question, response } in &case.examples {
            messages.extend([message("user", question), message("assistant", response)]);
        }
        messages.push(message("user", &golden.question));
        for (name, expected) in &case.texts {
            let published = &templates[name];
            let mut config = json!(published.tokens);
            config["chat_template"] = json!(published.template);
            let template = ChatTemplate::load(folder(&config).path()).unwrap().unwrap();
            let date = published.template.contains(DATE_FUNCTION);
            let date = date.then(|| (DATE_FUNCTION.to_string(), FIXED_DATE.into()));
            let kwargs = date.into_iter().collect();
            let prefix = &case.response_prefix;
            let text = template.render_continued(messages.clone(), prefix, &kwargs);
            refused += usize::from(text.is_err());
            assert_eq!(&text.ok(), expected, "{name}, {:?}", case.response_prefix);
        }
    }
    assert_eq!(refused, 5, "templates without a system's message or without the text");
}

#[test]
fn the_end_of_a_turn_is_what_follows_an_answer() {
    let golden = golden();
    let end = |name: &str| {
        let published = &golden.templates[name];
        let mut config = json!(published.tokens);
        config["chat_template"] = json!(published.template);
        ChatTemplate::load(folder(&config).path()).unwrap().unwrap().end_of_turn()
    };
    assert_eq!(end("qwen2_5"), "<|im_end|>\n");
    assert_eq!(end("llama3"), "<|eot_id|>");
    assert_eq!(end("deepseekv3"), "<｜end▁of▁sentence｜>");
    assert_eq!(of("{{ messages[0].content }}").unwrap().end_of_turn(), "");
}

#[test]
fn a_template_is_a_file_a_text_or_the_default_of_several() {
    let named = json!([{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]);
    let several = folder(&json!({"chat_template": named}));
    let render = |folder: &tempfile::TempDir| {
        let template = ChatTemplate::load(folder.path()).unwrap().unwrap();
        template.render(&user("q"), true).unwrap()
    };
    assert_eq!(render(&several), "d");
    files::write_atomic(&several.path().join("chat_template.jinja"), b"file").unwrap();
    assert_eq!(render(&several), "file");
    assert_eq!(ChatTemplate::load(folder(&json!({"bos_token": "x"})).path()).unwrap(), None);
    assert_eq!(ChatTemplate::load(tempfile::tempdir().unwrap().path()).unwrap(), None);
    for value in [json!(7), json!([{"name": "tools", "template": "t"}])] {
        let error = ChatTemplate::load(folder(&json!({"chat_template": value})).path());
        assert!(error.unwrap_err().to_string().contains("must be a text, or a list"));
    }
}

#[test]
fn what_is_no_template_is_refused_with_its_line() {
    let refusal = of("{% if %}").unwrap_err();
    assert!(refusal.starts_with("tokenizer_config.json: chat template: "), "{refusal}");
    assert!(refusal.ends_with("(line 1)"), "{refusal}");
    let refusal = of("a\n{{ raise_exception('no ' + messages[0].role) }}").unwrap_err();
    assert_eq!(refusal, "tokenizer_config.json: chat template: no user (line 2)");
    let refusal = of("{{ messages[0].content.nothing.more }}").unwrap_err();
    assert!(refusal.contains("chat template: "), "{refusal}");
}

#[test]
fn a_template_without_end_runs_out_of_fuel() {
    let endless = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
    let refusal = of(endless).unwrap_err();
    assert!(refusal.contains("fuel"), "{refusal}");
}

fn with(template: &ChatTemplate, kwargs: serde_json::Value) -> Result<String, String> {
    let kwargs: JsonObject = serde_json::from_value(kwargs).unwrap();
    template.render_with(&user("q"), true, &kwargs).map_err(|error| error.to_string())
}

#[test]
fn a_template_that_asks_for_the_date_is_refused_with_what_helps_until_a_date_is_stated() {
    for template in [
        "{% if date is defined %}{{ date }}{% elif strftime_now is defined %}{{ strftime_now('%d') }}{% endif %}",
        "{% macro m() %}{{ date if date is defined else strftime_now('%d') }}{% endmacro %}{{ m() }}",
    ] {
        let template = of(template).unwrap();
        assert!(template.asks_for_date());
        let refusal = with(&template, json!({})).unwrap_err();
        let told = "it asks for today's date by strftime_now(\"%d\"), and a prompt must not depend on the day; \
                    state a date: prompt.chat_template_kwargs.strftime_now = \"26 Jul 2024\"";
        assert!(refusal.contains(told) && refusal.ends_with("(line 1)"), "{refusal}");
        assert_eq!(with(&template, json!({ "strftime_now": "1 May" })).unwrap(), "1 May");
        assert_eq!(with(&template, json!({ "date": "2 May" })).unwrap(), "2 May");
        assert_eq!(template.render(&user("q"), true).unwrap(), FIXED_DATE);
    }
    assert!(!of("{{ messages[0].content }}").unwrap().asks_for_date());
}

/// The texts are those of transformers 5.23.
#[test]
fn variables_of_a_template_are_given_and_one_that_it_does_not_read_is_refused() {
    let template = "{% set b = b | default('unset') %}{# c #}c{{ messages[0].c }}{{ 'c' }}\
                    {% if enable_thinking is defined and enable_thinking is false %}no{% endif %}\
                    {{ b }},{{ n }},{{ eos_token }}";
    let template = of(template).unwrap();
    let with = |kwargs| with(&template, kwargs);
    assert_eq!(with(json!({})).unwrap(), "ccunset,,");
    assert_eq!(with(json!({ "enable_thinking": false, "n": 1.5 })).unwrap(), "ccnounset,1.5,");
    assert_eq!(with(json!({ "b": true, "n": 3 })).unwrap(), "ccTrue,3,");
    let refusal = with(json!({ "enable_thinkin": 1 })).unwrap_err();
    let told = "the template has no variable enable_thinkin; it reads enable_thinking, n";
    assert!(refusal.ends_with(told), "{refusal}");
    let refusal = self::with(&of("{{ messages }}").unwrap(), json!({ "a": 1 })).unwrap_err();
    assert!(refusal.ends_with("it has none that can be stated"), "{refusal}");
}

#[test]
fn special_tokens_of_a_file_of_their_own_go_first_where_the_other_has_no_decoder() {
    let read = |config: serde_json::Value, map: serde_json::Value| {
        let mut config = config;
        config["chat_template"] = json!("{{ bos_token }},{{ eos_token }}");
        let folder = folder(&config);
        files::write_json(&folder.path().join("special_tokens_map.json"), &map).unwrap();
        let template = ChatTemplate::load(folder.path()).unwrap().unwrap();
        template.render(&user("q"), true).unwrap()
    };
    let map = json!({"bos_token": {"content": "<b>", "lstrip": false}});
    assert_eq!(read(json!({}), map.clone()), "<b>,");
    assert_eq!(read(json!({"bos_token": "<a>", "eos_token": "<e>"}), map.clone()), "<b>,<e>");
    assert_eq!(read(json!({"bos_token": "<a>", "added_tokens_decoder": {}}), map), "<a>,");
}

/// The texts are those of transformers 5.23.
#[test]
fn blocks_of_generation_are_rendered_as_in_transformers() {
    for (template, expected) in [
        (
            "{% for m in messages %}\n  {%- if m.role == 'assistant' %}\n  A:\n    {% generation %}\n  \
             {{ m.content }}{{ eos_token }}\n    {% endgeneration %}\n  {%- else %}\nU:{{ m.content }}\n  \
             {% endif %}\n  {%- generation -%}  x  {%- endgeneration -%}\n{% endfor %}\nend",
            "U:q\nx  A:\n  a<eos>\nxend",
        ),
        (
            "{% for m in messages %}{% set ns = 'o' %}{% generation %}{% set ns = 'i' %}{{ ns }}\
             {{ loop.index }}{{ m.content }}{% endgeneration %}{{ ns }}\n{% endfor %}\
             {%+ generation %} y {% endgeneration +%}\nz",
            "i1qo\ni2ao\n y \nz",
        ),
    ] {
        let config = json!({"chat_template": template, "eos_token": "<eos>"});
        let template = ChatTemplate::load(folder(&config).path()).unwrap().unwrap();
        let answer = Message { role: "assistant".into(), content: "a".into() };
        let messages = [user("q").to_vec(), vec![answer]].concat();
        assert_eq!(template.render(&messages, true).unwrap(), expected);
    }
}

/// The texts are those of transformers 5.23.
#[test]
fn python_s_keywords_and_methods_do_what_they_do_in_transformers() {
    for (template, expected) in [
        (
            "{{ messages[0] | tojson(indent=2) }}",
            "{\n  \"role\": \"user\",\n  \"content\": \"é😀 \\\"q\\\"\\n\u{7f}\"\n}",
        ),
        ("{{ {'b': [1, {}], 'a': []} | tojson }}", r#"{"b": [1, {}], "a": []}"#),
        ("a\r\n{% if true %}\r\n{{ 'b\\\r\nc\rd' }}\r{% endif %}\re\r\n", "a\nbc\nd\ne"),
        (
            "{{ 'xab'.removeprefix('x') }}{{ 'xab'.removesuffix('b') }}{{ 'xab'.removeprefix('q') }}",
            "abxaxab",
        ),
        (
            "{% for it in [none, nope, 'x', {}, [], 1] %}{{ it is iterable }} {{ it is sequence }},{% endfor %}",
            "False False,True True,True True,True True,True True,False False,",
        ),
    ] {
        let messages = user("é😀 \"q\"\n\u{7f}");
        assert_eq!(of(template).unwrap().render(&messages, true).unwrap(), expected, "{template}");
    }
    for (template, told) in [
        ("{{ 1 | tojson(indents=2) }}", "indents"),
        ("{{ 1 | tojson(indent=0) }}", "1 to 64"),
        ("{{ 1 | tojson(ensure_ascii=true) }}", "ensure_ascii"),
        ("{{ 'a'.partition('b') }}", "partition"),
    ] {
        let refusal = of(template).unwrap_err();
        assert!(refusal.contains(told), "{refusal}");
    }
}

/// The texts are those of transformers 5.23 with Jinja2 3.1.6.
#[test]
fn filters_and_methods_give_the_texts_of_jinja2() {
    for (template, expected) in [
        ("{{ messages[0].content|e }}", "&lt;b&gt;/ What&#39;s &#34;é&#34; &amp; more\u{1f}"),
        (
            "{{ ('<'|e)|escape }}{{ ['<']|e }}{{ none|e }}{{ 1e20|e }}",
            "&lt;[&#39;&lt;&#39;]None1e+20",
        ),
        (
            "{% autoescape true %}{{ \"'/\" }}{% endautoescape %}{{ 'a'|tojson|e }}",
            "&#39;/&#34;a&#34;",
        ),
        ("{{ \"what's a1b (cd) 日本e ΟΔΟΣ ﬁ\".title() }}", "What'S A1B (Cd) 日本E Οδος Fi"),
        ("{{ \"what's a1b (cd)-e ΟΔΟΣ\"|title }}", "What's A1b (Cd)-E Οδος"),
        ("{{ 'ßA'|capitalize }}{{ 'éA'.capitalize() }}{{ ''|capitalize }}", "SsaÉa"),
        (
            "{{ 1e16 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1e15 }} {{ -0.0 }} {{ 'nan'|float }}",
            "1e+16 1e-05 0.0001 1000000000000000.0 -0.0 nan",
        ),
        (
            "{{ 1e20|string }} {{ 1e-7|tojson }} {{ [1.0, 1e16]|tojson }}",
            "1e+20 1e-07 [1.0, 1e+16]",
        ),
        ("{{ messages[0].content|trim|length }}{{ messages[0].content.strip()|length }}", "2222"),
        ("{{ 'a\\x1cb'.split() }}{{ '\\x1f'.isspace() }}", "['a', 'b']True"),
        ("{{ 'a\\r\\nb\\rc\\x0cd\\u2028e\\n'.splitlines() }}", "['a', 'b', 'c', 'd', 'e']"),
        ("{{ 'ⓐ'.isalpha() }}{{ 'é'.isalpha() }}{{ 'Ⅷ'.isalnum() }}", "FalseTrueTrue"),
        (
            r"{{ '\U0001F600\U00000041\a\v'|tojson }}{{ '\/' }}{{ '\\a' }}",
            r#""😀A\u0007\u000b"\/\a"#,
        ),
        (
            "{% if messages|selectattr('role')|list %}a{% endif %}\
             {% if 'user' in messages|map(attribute='role') %}b{% endif %}",
            "ab",
        ),
        ("{{ 'abc'[::-1] }}{{ [1,2,3][:2][::-1] }}", "cba[2, 1]"),
    ] {
        let messages = user("<b>/ What's \"é\" & more\u{1f}");
        assert_eq!(of(template).unwrap().render(&messages, true).unwrap(), expected, "{template}");
    }
}

#[test]
fn what_would_be_another_text_than_jinja2_s_is_refused() {
    for (template, told) in [
        (r#"{{ "\N{BULLET}" }}"#, r"a character by its name, \N{…}"),
        ("{{ [1,2,3][2:0:-1] }}", "a slice with an end and a negative step"),
        (
            "{% if not messages | selectattr('role', 'equalto', 'x') %}a{% endif %}",
            "put `| list` behind it",
        ),
        ("{{ messages[0]|attr('role') }}", "write [\"role\"]"),
        ("{% macro f(x) %}{{ varargs }}{% endmacro %}{{ f(1) }}", "`varargs` of Jinja2"),
        ("{{ cycler is defined }}", "`cycler` of Jinja2"),
        ("{{ '²'.isdigit() }}", "isdigit of a text that is not ASCII"),
        ("{{ [1]|pprint }}", "pprint"),
        ("{{ debug() }}", "debug"),
    ] {
        let refusal = of(template).unwrap_err();
        assert!(refusal.contains(told), "{refusal}");
    }
}

#[test]
fn a_template_is_compiled_once_and_keeps_nothing_of_a_conversation() {
    let compiled = || {
        let kept = COMPILED.take();
        let first = kept
            .as_ref()
            .map(|(_, it)| std::ptr::from_ref(it.get_template("<string>").unwrap().source()));
        COMPILED.set(kept);
        first
    };
    let dated = "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ strftime_now('%Y') }}{{ x }}";
    let (one, other) = (of(dated).unwrap(), of("other").unwrap());
    let with = |kwargs: serde_json::Value| {
        one.render_with(&user("q"), true, &serde_json::from_value(kwargs).unwrap()).unwrap()
    };
    assert_eq!(with(json!({"strftime_now": "2024", "x": "a"})), "12024a");
    let first = compiled();
    assert_eq!(with(json!({"strftime_now": "2025"})), "12025");
    one.render_with(&user("q"), true, &JsonObject::new()).unwrap_err();
    assert_eq!(one.render(&user("q"), true).unwrap(), format!("1{FIXED_DATE}"));
    assert!(first.is_some() && compiled() == first);
    assert_eq!(other.render(&user("q"), true).unwrap(), "other");
    assert_eq!(with(json!({"strftime_now": "2024", "x": "a"})), "12024a");
}

#[test]
fn json_has_the_spaces_of_python() {
    let template = "{{ messages[0] | tojson }}";
    let text = of(template).unwrap().render(&user("é <b> \"q\""), true).unwrap();
    assert_eq!(text, r#"{"role": "user", "content": "é <b> \"q\""}"#);
}
