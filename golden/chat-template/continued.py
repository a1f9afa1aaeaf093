"""Turns of an assistant that are gone on with, as transformers renders them (`continue_final_message=True`).

    pip install -r golden/chat-template/requirements.txt
    ./justw smollm2
    python golden/chat-template/continued.py

The templates are those of templates.json and that of SmolLM2-135M-Instruct, for which the token ids stand here as well.
"""

import json
import pathlib

import jinja2
import transformers
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent.parent / "models" / "SmolLM2-135M-Instruct"
TEMPLATES = json.loads((HERE / "templates.json").read_text(encoding="utf-8"))["templates"]
DATE = "26 Jul 2024"

EXAMPLES = [("1+1?", "One and one. Answer: 2"), ("2+2?", "Answer: 4\n")]

# system, examples, response_prefix
CASES = [
    (None, [], "Let's think step by step."),
    (None, [], "Answer: "),
    (None, [], "  So é 中文:\n\n"),
    (None, EXAMPLES, "Answer:"),
    ("Be brief.", EXAMPLES, "Answer:"),
    ("Be brief.", [], "x"),
    (None, [], "<think>\nHm.</think>So"),
    (None, [], "user"),
]


def messages(system, examples, prefix):
    turns = [] if system is None else [("system", system)]
    for question, response in examples:
        turns += [("user", question), ("assistant", response)]
    turns += [("user", "3+4?"), ("assistant", prefix)]
    return [{"role": role, "content": content} for role, content in turns]


def rendered(template, tokens, case):
    try:
        texts, _ = render_jinja_template(
            [messages(*case)], chat_template=template, continue_final_message=True, date_string=DATE, **tokens
        )
        return texts[0]
    except (jinja2.exceptions.TemplateError, ValueError):
        return None


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    cases = []
    for case in CASES:
        system, examples, prefix = case
        texts = {name: rendered(it["template"], it["tokens"], case) for name, it in TEMPLATES.items()}
        chat = messages(*case)
        texts["smollm2"] = tokenizer.apply_chat_template(chat, tokenize=False, continue_final_message=True)
        ids = tokenizer.apply_chat_template(chat, continue_final_message=True, return_dict=False)
        examples = [{"question": question, "response": response} for question, response in examples]
        cases.append({"system": system, "examples": examples, "response_prefix": prefix, "texts": texts, "smollm2_ids": ids})
    document = {
        "provenance": {
            "transformers": transformers.__version__,
            "jinja2": jinja2.__version__,
            "made_by": "golden/chat-template/continued.py",
        },
        "question": "3+4?",
        "smollm2_template": tokenizer.chat_template,
        "cases": cases,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (HERE / "continued.json").write_text(text + "\n", encoding="utf-8")


main()
