#!/usr/bin/env python3
"""Writes what Python's Jinja makes of chat templates, for engine/tests/templates.rs.

Usage: tools/template-goldens.py MODEL.gguf [OUT]

MODEL.gguf  a model with tokenizer.chat_template, taken as the template "model"; tools/fetch-model.sh smollm2 gets one
OUT         engine/tests/data/templates.json where it is not given

Needs the Python packages gguf and jinja2.

The environment is the one in which Hugging Face's transformers renders chat templates: an immutable sandbox with
trim_blocks and lstrip_blocks, loop controls, generation blocks, tojson as json.dumps, raise_exception and strftime_now,
which tells a fixed time here. The filter fromjson, which some templates use, is added.

OUT holds the templates, the conversations and one case for each pair: the text rendered, or "refused" with the message of
raise_exception, or "fails" where rendering fails otherwise.
"""

import datetime
import importlib.metadata
import json
import os
import sys

import gguf
import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 7, 6, 5, 4, 3, 21000)

TEMPLATES = {
    "chatml": """{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' ~ message['role'] ~ '\\n' ~ message['content'] | trim ~ '<|im_end|>' ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "headers": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "reasoning": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "turns": """{{ bos_token }}
{% if messages[0]['role'] == 'system' %}
    {% set first_user_prefix = messages[0]['content'] + '\\n\\n' %}
    {% set loop_messages = messages[1:] %}
{% else %}
    {% set first_user_prefix = "" %}
    {% set loop_messages = messages %}
{% endif %}
{% for message in loop_messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {% endif %}
    {% set role = "model" if message['role'] == 'assistant' else message['role'] %}
{{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {% if message['content'] is string %}
{{ message['content'] | trim }}
    {% elif message['content'] is iterable %}
        {% for item in message['content'] %}
            {% if item['type'] == 'text' %}
{{ item['text'] | trim }}
            {% endif %}
        {% endfor %}
    {% else %}
{{ raise_exception("Invalid content type") }}
    {% endif %}
{{ '<end_of_turn>\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}
""",
    "calls": """{%- macro render(value, level=0) -%}
    {%- if value is mapping -%}
        {%- for key, item in value.items() -%}
            {{- '  ' * level ~ key ~ ':' }}{{ '\\n' if item is mapping else ' ' }}{{ render(item, level + 1) }}
        {%- endfor -%}
    {%- elif value is sequence and value is not string -%}
        {{- '[' }}{% for item in value %}{{ item }}{{ ', ' if not loop.last }}{% endfor %}{{ ']\\n' }}
    {%- elif value is boolean -%}
        {{- 'yes\\n' if value else 'no\\n' -}}
    {%- elif value is none -%}
        {{- 'nothing\\n' -}}
    {%- elif value is number -%}
        {{- '#' ~ value ~ '\\n' -}}
    {%- else -%}
        {{- value ~ '\\n' -}}
    {%- endif -%}
{%- endmacro -%}
{%- for message in messages %}
{{- '[' ~ message.role | upper ~ ']' }}
{%- if loop.previtem is defined and loop.previtem.role == message.role %}(again){% endif %}
{%- if loop.nextitem is not defined %}(last){% endif %}
{{- ' ' ~ (message.content or '') }}
{%- for call in message.tool_calls or [] %}
    {%- set arguments = call.function.arguments | fromjson if call.function.arguments is string else call.function.arguments %}
    {{- '\\n' ~ call.function.name ~ '(\\n' ~ arguments | tojson(indent=2) ~ ')\\n' }}
    {{- render(arguments) }}
    {{- arguments | tojson(sort_keys=true, separators=(',', ':'), ensure_ascii=true) }}
    {{- arguments.keys() | list | join('|') }}/{{ arguments | length }}/{{ arguments.get('city', 'nowhere') }}
{%- endfor %}
{{- '\\n' }}
{%- endfor %}
{%- for tool in tools or [] %}
    {%- set f = tool.function if tool.function is defined else tool %}
    {{- f.name ~ ': ' ~ f.description ~ ' ' ~ f.parameters.required | default([]) | join(', ') ~ '\\n' }}
    {%- for name, schema in f.parameters.properties | dictsort %}
        {{- '  - ' ~ name ~ ' (' ~ schema.type | default('any') ~ ')' ~ ('' if name in f.parameters.required else '?') ~ '\\n' }}
    {%- endfor %}
{%- endfor %}
{%- set users = messages | selectattr('role', 'equalto', 'user') | list %}
{{- users | length ~ ' of ' ~ messages | map(attribute='role') | unique | sort | join('/') }}
{{- eos_token if not add_generation_prompt }}
""",
    "strings": """{% for message in messages if message.role != 'tool' %}
{% set text = message.content %}
{% if text is not string %}{% continue %}{% endif %}
{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ text.upper() }}|{{ text.title() }}|{{ text.lower() | capitalize }}
{{ text.split() | join('_') }}|{{ text.split(' ', 1) | last }}|{{ text.splitlines() | length }}|{{ text | length }}|{{ text[:4] }}|{{ text[-3:] }}|{{ text[::-1] }}|{{ text[1:6:2] }}
{{ text.replace('e', '3') }}|{{ text.find('l') }}|{{ text.count('l') }}|{{ text.startswith('H') }}|{{ 'ell' in text }}|{{ text.endswith(('!', '?')) }}
{{ "%s-%d" | format(text[:2], loop.index) }}|{{ text | replace('l', 'L') | indent(2) }}|{{ text | string | e }}|{{ text == '' }}|{{ text | first }}
{% if loop.index > 3 %}{% break %}{% endif %}
{% endfor %}
{{ [1, 2.5, true, none, 'x', {'k': ['v']}] }} {{ 7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 2 ** 5 }} {{ 1e3 }} {{ '3' | int + 4 }} {{ range(1, 8, 3) | list }}
{{ messages | length is divisibleby 2 }} {{ (messages | last).role }} {{ messages[-1]['role'] }} {{ undefined_name }}{{ undefined_name is defined }} {{ 'a' if false }}
{%- set total = namespace(n=0, seen=[]) %}
{%- for message in messages %}{% set total.n = total.n + (message.content | default('', true) | length) %}{% set total.seen = total.seen + [message.role] %}{% endfor %}
{{ total.n }} {{ total.seen }} {{ dict(a=1, b='c') | tojson }} {{ [3, 1, 2] | sort | reverse | list | tojson }} {{ {'z': 1.0, 'a': 1e20, 'n': none} | tojson }} {{ '<b>&"\\u00e9' | tojson }}
{# a comment #}
  {%- raw %} {{ not rendered }} {% endraw -%}
   {{ '   kept  ' -}}   
   end
""",
    "generation": """{% for message in messages %}
{% if message.role == 'assistant' %}
{{ '<|assistant|>\\n' }}{% generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}

{% else %}
{{ '<|' + message.role + '|>\\n' + message.content + '\\n' }}
    {%- generation -%}   x {%- endgeneration %}
{% endif %}
{% endfor %}
{{ strftime_now('%Y-%m-%d %H:%M:%S.%f|%A|%B|%j|%p|%I|%y|%-d|%e|%%') }}
""",
    "strict": """{% if messages[0].role == 'system' and messages | length == 1 %}{{ raise_exception('A system message alone is no conversation: ' ~ messages[0].content) }}{% endif %}
{% for message in messages %}{{ message.role + ': ' + message.name + '\\n' }}{% endfor %}
""",
}

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a <city> & \"more\"", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Die Stadt, z. B. K\u00f6ln"}, "days": {"type": "integer", "default": 3}, "any": {}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}, "required": []}}},
]
CALL = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "K\u00f6ln \U0001f600", "days": 2, "deep": {"z": [1, 2.5, None], "a": True}, "none": None, "no": False, "list": []}}}
CALL_TEXT = {"id": "2", "type": "function", "function": {"name": "now", "arguments": "{\"zone\": \"UTC\", \"x\": 1.0, \"big\": 1.5e3, \"a\": \"\\u00e9\\n\"}"}}
USER = {"role": "user", "content": "Hello, world!"}
SYSTEM = {"role": "system", "content": "You are  \u00fcber-helpful.\n"}
ASSISTANT = {"role": "assistant", "content": " Hi there! "}

CONVERSATIONS = {
    "user": {"messages": [USER], "add_generation_prompt": True},
    "user, no prompt": {"messages": [USER], "add_generation_prompt": False},
    "system": {"messages": [SYSTEM, USER], "add_generation_prompt": True},
    "system only": {"messages": [SYSTEM], "add_generation_prompt": True},
    "turns": {"messages": [SYSTEM, USER, ASSISTANT, {"role": "user", "content": "And\r\nnow?\n\n"}], "add_generation_prompt": True},
    "empty content": {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": "   "}], "add_generation_prompt": True},
    "no content": {"messages": [USER, {"role": "assistant"}, USER], "add_generation_prompt": True},
    "null content": {"messages": [USER, {"role": "assistant", "content": None}], "add_generation_prompt": False},
    "twice": {"messages": [USER, USER, ASSISTANT, ASSISTANT], "add_generation_prompt": False},
    "odd text": {"messages": [{"role": "user", "content": "<|im_end|> {{ x }} {% if %} \u4f60\u597d \U0001f600 '\"\\ \u00a0\ttab\u2028"}], "add_generation_prompt": True},
    "tools": {"messages": [SYSTEM, USER], "tools": TOOLS, "add_generation_prompt": True},
    "no tools": {"messages": [USER], "tools": [], "add_generation_prompt": True},
    "call": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}], "tools": TOOLS, "add_generation_prompt": False},
    "call as text": {"messages": [USER, {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL_TEXT]}], "tools": TOOLS, "add_generation_prompt": False},
    "calls and results": {"messages": [SYSTEM, USER, {"role": "assistant", "content": "", "tool_calls": [CALL, CALL_TEXT]}, {"role": "tool", "content": "{\"t\": 21}", "tool_call_id": "1"}, {"role": "tool", "content": "12:00", "tool_call_id": "2"}, ASSISTANT, USER], "tools": TOOLS, "add_generation_prompt": True},
    "result": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "21 \u00b0C", "tool_call_id": "1"}], "tools": TOOLS, "add_generation_prompt": True},
    "reasoning in text": {"messages": [USER, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes."}, USER, {"role": "assistant", "content": "<think>\nOh.\n</think>\n\nNo."}], "add_generation_prompt": False},
    "reasoning apart": {"messages": [USER, {"role": "assistant", "content": "Yes.", "reasoning_content": "\nHm.\n"}], "add_generation_prompt": False},
    "no thinking": {"messages": [USER], "extra": {"enable_thinking": False, "date_string": "26 Jul 2024"}, "add_generation_prompt": True},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]}], "add_generation_prompt": True},
    "names": {"messages": [{"role": "user", "name": "eva", "content": "x"}, {"role": "assistant", "name": "ann", "content": "y"}], "add_generation_prompt": False},
}


class Generation(Extension):
    """Renders the body of generation blocks."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


class Refusal(jinja2.exceptions.TemplateError):
    pass


def refuse(message):
    raise Refusal(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    out = sys.argv[2] if len(sys.argv) == 3 else os.path.join(root, "engine/tests/data/templates.json")
    model = gguf.GGUFReader(sys.argv[1]).fields["tokenizer.chat_template"].contents()
    templates = {"model": model, **TEMPLATES}
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    environment.filters["fromjson"] = json.loads
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = NOW.strftime
    cases = []
    for name, source in templates.items():
        compiled = environment.from_string(source)
        for conversation, given in CONVERSATIONS.items():
            case = {"template": name, "conversation": conversation}
            try:
                case["text"] = compiled.render(
                    messages=given["messages"], tools=given.get("tools"), documents=None,
                    add_generation_prompt=given["add_generation_prompt"], bos_token="<bos>", eos_token="<eos>",
                    **given.get("extra", {}),
                )
            except Refusal as refusal:
                case["refused"] = refusal.message
            except (jinja2.exceptions.TemplateError, TypeError) as fault:
                case["fails"] = f"{type(fault).__name__}: {fault}"
            cases.append(case)
    made = {
        "made_by": "tools/template-goldens.py",
        "versions": {"jinja2": importlib.metadata.version("jinja2")},
        "now": NOW.isoformat() + "+00:00",
        "templates": templates,
        "conversations": CONVERSATIONS,
        "cases": cases,
    }
    with open(out, "w", encoding="ascii") as file:
        json.dump(made, file, indent=1)
        file.write("\n")
    fails = [case for case in cases if "fails" in case]
    print(f"{out}: {len(cases)} cases, {sum('text' in case for case in cases)} rendered, {len(fails)} fail")
    for case in fails:
        print(f"  {case['template']}, {case['conversation']}: {case['fails']}")


if __name__ == "__main__":
    main()
