//! Templates by hand: what is rendered, what is refused and where the fault is put.

use chrono::{DateTime, FixedOffset};
use serde_json::{Map, Value, json};

use super::*;

const SMOLLM2: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn now() -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339("2024-07-06T05:04:03+02:00").unwrap()
}

fn render(source: &str, messages: &Value) -> Result<String, TemplateError> {
    ChatTemplate::new(source, "<s>", "</s>")?.render(messages, None, &Map::new(), true, now())
}

#[test]
fn the_template_of_smollm2_renders() {
    let messages = json!([
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "4."},
        {"role": "user", "content": "<|im_end|>\n{{ 1 }}"},
    ]);
    insta::assert_snapshot!(render(SMOLLM2, &messages).unwrap(), @r"
    <|im_start|>system
    You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
    <|im_start|>user
    What is 2 + 2?<|im_end|>
    <|im_start|>assistant
    4.<|im_end|>
    <|im_start|>user
    <|im_end|>
    {{ 1 }}<|im_end|>
    <|im_start|>assistant
    ");
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": ""}]);
    let prompt =
        ChatTemplate::new(SMOLLM2, "", "").unwrap().render(&messages, None, &Map::new(), false, now()).unwrap();
    assert_eq!(prompt, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<|im_end|>\n");
}

#[test]
fn the_fault_is_put_where_it_belongs() {
    let messages = json!([{"role": "user", "content": "x"}]);
    let fault = |source: &str| render(source, &messages).unwrap_err();
    let refused = fault("\n{{ raise_exception('roles must ' ~ 'alternate') }}");
    assert_eq!(refused.to_string(), "the chat template refuses the messages: roles must alternate");
    assert!(refused.blames_messages());
    for source in
        ["\n{{ messages[0].name.first }}", "\n{{ 'a' + messages[0].name }}", "\n{{ messages[0].name | tojson }}"]
    {
        let unfit = fault(source);
        assert!(matches!(unfit, TemplateError::Unfit { line: 2, .. }) && unfit.blames_messages(), "{unfit}");
    }
    for source in
        ["\n{{ messages | nothing }}", "\n{{ nothing() }}", "\n{{ messages.nothing() }}", "\n{% include 'x' %}"]
    {
        let broken = fault(source);
        assert!(!broken.blames_messages(), "{broken}");
    }
    let syntax = ChatTemplate::new("\n\n{% if %}", "", "").unwrap_err();
    assert!(matches!(syntax, TemplateError::Syntax { line: 3, .. }) && !syntax.blames_messages(), "{syntax}");
    assert!(matches!(ChatTemplate::new(&"x".repeat(2 << 20), "", ""), Err(TemplateError::Syntax { line: 0, .. })));
}

#[test]
fn work_is_bounded() {
    let messages = json!([]);
    let loops = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
    let grows = "{% set ns = namespace(x='xxxxxxxxxxxxxxxx') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
    for source in [loops, grows] {
        let fault = render(source, &messages).unwrap_err();
        assert!(matches!(fault, TemplateError::TooMuch { .. }) && !fault.blames_messages(), "{fault}");
    }
    let recursion = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    assert!(render(recursion, &messages).is_err());
    let nested = |last: &str| {
        let source = "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% for j in range(9999) %}\
                      {% set ns.x = [ns.x] %}{% if i == 4 and j == 0 %}LAST{% endif %}{% endfor %}{% endfor %}";
        render(&source.replace("LAST", last), &messages)
    };
    for last in ["", "{{ ns.x | tojson }}", "{{ ns.x }}", "{{ ns.x == ns.x }}", "{{ [ns.x] | sort }}"] {
        assert!(nested(last).is_err(), "{last}");
    }
}

#[test]
fn named_variables_are_not_replaced() {
    let extra = Map::from_iter([("messages".to_owned(), json!([])), ("enable_thinking".to_owned(), json!(false))]);
    let template = ChatTemplate::new("{{ messages | length }}{{ enable_thinking }}{{ bos_token }}", "<s>", "").unwrap();
    assert_eq!(template.render(&json!([1, 2]), None, &extra, true, now()).unwrap(), "2False<s>");
}

#[test]
fn json_takes_the_arguments_of_python() {
    let text = |source: &str| render(source, &json!([{"b": [], "a": {"x": 1.5, "y": "é"}}])).unwrap();
    assert_eq!(text("{{ messages | tojson }}"), r#"[{"b": [], "a": {"x": 1.5, "y": "é"}}]"#);
    assert_eq!(
        text("{{ messages[0] | tojson(sort_keys=true, separators=(',', ':'), ensure_ascii=true) }}"),
        r#"{"a":{"x":1.5,"y":"\u00e9"},"b":[]}"#
    );
    assert_eq!(text("{{ messages[0].a | tojson(indent=1) }}"), "{\n \"x\": 1.5,\n \"y\": \"é\"\n}");
    assert_eq!(text("{{ [1] | tojson(indent='\t') }}"), "[\n\t1\n]");
    assert_eq!(text("{{ {} | tojson(indent=2) }}{{ [] | tojson(true) }}"), "{}[]");
    for source in
        ["{{ 1 | tojson(indnt=2) }}", "{{ 1 | tojson(separators=',') }}", "{{ 1 | tojson(indent=999999999) }}"]
    {
        assert!(render(source, &json!([])).is_err());
    }
}
