"""Conversations as transformers renders them with published chat templates.

    pip install -r golden/chat-template/requirements.txt
    python golden/chat-template/generate.py

The templates are the originals that TRL (Apache-2.0) keeps in its package to recognise models by:
those of Qwen2.5, Qwen3, Llama 3, Llama 3.2, Gemma, Gemma 3, Phi-3.5, DeepSeek-V3,
DeepSeek-R1-Distill, gpt-oss and Nemotron 3 Nano, byte for byte. A template that asks for today's date gets the
date that Llama 3.2's has for programs that tell none (see `DATE`).
"""

import json
import pathlib

import jinja2
import transformers
import trl
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

HERE = pathlib.Path(__file__).parent
TEMPLATES = pathlib.Path(trl.__file__).parent / "chat_templates"
DATE = "26 Jul 2024"

# file of TRL: bos_token, eos_token
CASES = {
    "qwen2_5": (None, "<|im_end|>"),
    "qwen3": (None, "<|im_end|>"),
    "qwen3_instruct_2507": (None, "<|im_end|>"),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
    "llama3_2": ("<|begin_of_text|>", "<|eot_id|>"),
    "gemma": ("<bos>", "<eos>"),
    "gemma3": ("<bos>", "<eos>"),
    "phi3_5": ("<s>", "<|endoftext|>"),
    "deepseekv3": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "deepseek_r1_distill": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "gptoss": ("<|startoftext|>", "<|return|>"),
    "nemotron_3_nano": ("<s>", "<|im_end|>"),
}

DAPO = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    "What is $1+1$?\n\nRemember to put your answer on its own line after \"Answer:\"."
)


def message(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = {
    "dapo": [message("user", DAPO)],
    "system": [message("system", "Be brief."), message("user", "1+1?")],
    "turns": [message("user", "1+1?"), message("assistant", "2"), message("user", "2+2?")],
    "answered": [message("user", "1+1?"), message("assistant", "2")],
    "reasoning": [
        message("user", "1+1?"),
        message("assistant", "<think>\nOne and one.\n</think>\n\n2"),
        message("user", "And 2+2?"),
    ],
    "odd-text": [message("user", "  {{ messages }} {% if %} <|im_end|> é 中文 \"q\" 'q' \\n &lt;\n\n\t ")],
    "empty": [message("user", "")],
    "two-users": [message("user", "a"), message("user", "b")],
    "system-last": [message("user", "a"), message("system", "b")],
}


def rendered(template, messages, add_generation_prompt, tokens):
    _compile_jinja_template(template).environment.globals["strftime_now"] = lambda _format: DATE
    try:
        texts, _ = render_jinja_template(
            [messages],
            chat_template=template,
            add_generation_prompt=add_generation_prompt,
            **tokens,
        )
        return {"text": texts[0]}
    except jinja2.exceptions.TemplateError as error:
        return {"error": str(error)}


def main():
    templates = {}
    for name, (bos, eos) in CASES.items():
        template = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
        tokens = {k: v for k, v in [("bos_token", bos), ("eos_token", eos)] if v is not None}
        results = [
            {"conversation": key, "add_generation_prompt": add, **rendered(template, messages, add, tokens)}
            for key, messages in CONVERSATIONS.items()
            for add in (True, False)
        ]
        templates[name] = {"tokens": tokens, "template": template, "rendered": results}
    document = {
        "provenance": {
            "transformers": transformers.__version__,
            "jinja2": jinja2.__version__,
            "trl": trl.__version__,
            "made_by": "golden/chat-template/generate.py",
        },
        "conversations": CONVERSATIONS,
        "templates": templates,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (HERE / "templates.json").write_text(text + "\n", encoding="utf-8")


main()
