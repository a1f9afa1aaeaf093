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

impl Published {
    fn load(&self) -> ChatTemplate {
        let mut config = json!(self.tokens);
        config["chat_template"] = json!(self.template);
        ChatTemplate::load(folder(&config).path()).unwrap().unwrap()
    }
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
    [Message::new("user", content)]
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
    let mut refused = 0;
    for case in &golden.cases {
        let mut messages: Vec<Message> =
            case.system.iter().map(|text| Message::new("system", text)).collect();
        for PromptExample { question, response } in &case.examples {
            messages.extend([Message::new("user", question), Message::new("assistant", response)]);
        }
        messages.push(Message::new("user", &golden.question));
        for (name, expected) in &case.texts {
            let published = &templates[name];
            let date = published.template.contains(DATE_FUNCTION);
            let date = date.then(|| (DATE_FUNCTION.to_string(), FIXED_DATE.into()));
            let kwargs = date.into_iter().collect();
            let prefix = &case.response_prefix;
            let text = published.load().render_continued(messages.clone(), prefix, &kwargs);
            refused += usize::from(text.is_err());
            assert_eq!(&text.ok(), expected, "{name}, {:?}", case.response_prefix);
        }
    }
    assert_eq!(refused, 5, "templates without a system's message or without the text");
}

#[test]
fn the_end_of_a_turn_is_what_follows_an_answer() {
    let golden = golden();
    let end = |name: &str| golden.templates[name].load().end_of_turn();
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

/// The texts are those of transformers 5.23 with Jinja2 3.1.6.
#[test]
fn filters_and_methods_give_the_texts_of_jinja2() {
    for (template, expected) in [
        ("{{ messages[0].content|e }}", "&lt;b&gt;/ What&#39;s &#34;é&#34; &amp; more"),
        ("{{ ('<'|e)|escape }}{{ ['<']|e }}{{ none|e }}", "&lt;[&#39;&lt;&#39;]None"),
        ("{{ 'a'|tojson|e }}", "&#34;a&#34;"),
        ("{{ 'userA'|capitalize }}{{ 'aB'.capitalize() }}{{ ''|capitalize }}", "UseraAb"),
        (r"{{ '\\a' }}{{ '\\/' }}", r"\a\/"),
        (
            "{% if messages|selectattr('role')|list %}a{% endif %}\
             {% if 'user' in messages|map(attribute='role') %}b{% endif %}",
            "ab",
        ),
        ("{{ 'abc'[::-1] }}{{ [1,2,3][:2][::-1] }}", "cba[2, 1]"),
        ("{{ 'Use [a: b: -1] if text | map and more' }}", "Use [a: b: -1] if text | map and more"),
        (
            "{% for m in other or messages|rejectattr('role', 'equalto', 'x') %}{{ m.role }}{% endfor %}",
            "user",
        ),
    ] {
        let messages = user("<b>/ What's \"é\" & more");
        assert_eq!(of(template).unwrap().render(&messages, true).unwrap(), expected, "{template}");
    }
}

#[test]
fn what_would_be_another_text_than_jinja2_s_is_refused() {
    for (template, told) in [
        (r#"{{ "\N{BULLET}" }}"#, "an escape that is read otherwise"),
        (r"{{ 'a\/b' }}", "an escape that is read otherwise"),
        ("{% autoescape true %}a{% endautoescape %}", "an automatic escape"),
        ("{{ messages[0].content|title }}", "title"),
        ("{{ messages[0].content.title() }}", "title() has other capitals"),
        ("{{ [1,2,3][2:0:-1] }}", "a slice with an end and a negative step"),
        (
            "{% if not messages | selectattr('role', 'equalto', 'x') %}a{% endif %}",
            "put `| list` behind it",
        ),
        (
            "{% if add_generation_prompt and messages | selectattr('x') -%}a{% endif %}",
            "put `| list` behind it",
        ),
        ("{{ 1 if messages | map('first') else 2 }}", "put `| list` behind it"),
        ("{{ messages[0]|attr('role') }}", "attr"),
        ("{% macro f(x) %}{{ varargs }}{% endmacro %}{{ f(1) }}", "`varargs` of Jinja2"),
        ("{{ cycler is defined }}", "`cycler` of Jinja2"),
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
