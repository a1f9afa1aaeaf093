"""What transformers makes of SmolLM2-135M-Instruct: logits, greedy answers, chats, and token ids of 200 texts.

    pip install -r golden/requirements.txt jinja2
    ./justw smollm2
    python golden/smollm2/generate.py

One thread, eager attention. Logits are computed in f64 from the f32 weights, and `float32_distance` is how far those that
transformers computes in f32 are from them. Greedy answers are made in f32; in every step the best logit leads the second by
`smallest_lead` or more.
"""

import hashlib
import pathlib
import sys

import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from json_text import compact

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent.parent / "models" / "SmolLM2-135M-Instruct"
NEW_TOKENS = 24
# Every 96th id of 49,152.
EVERY = 96


def message(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = {
    "user": [message("user", "What is 17 + 25?")],
    "system": [message("system", "Be brief."), message("user", "Name three colours.")],
    "empty-system": [message("system", ""), message("user", "Hello")],
    "turns": [
        message("user", "My name is Ada."),
        message("assistant", "Hello, Ada!"),
        message("user", "What is my name?"),
    ],
    "answered": [message("user", "1+1?"), message("assistant", "2")],
    "odd-text": [message("user", "  {{ messages }} {% if %} <|im_end|> é 中文 \"q\" \\n &lt;\n\n\t ")],
    "empty": [message("user", "")],
    "two-systems": [message("system", "a"), message("user", "b"), message("system", "c")],
}

PROMPTS = [
    "The capital of France is",
    "1 2 3 4 5 6 7 8 9 10 11 12",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "I love pizza 🍕 and ice cream 🍦 because",
    "Once upon a time there was a king who had three daughters. The eldest was proud and the second was vain, but the youngest was "
    "kind to all whom she met. One winter, when snow lay deep on the fields and the wolves came down from the hills, the king fell ill, "
    "and no physician in the land could say what ailed him. Then an old woman came to the gate and said that far away, beyond the "
    "seven rivers, there grew a tree with silver leaves. Whoever drank a tea of these leaves would be healthy again. The eldest "
    "daughter said that the road was too long. The second said that the rivers were too deep. But the youngest",
    CONVERSATIONS["user"],
    CONVERSATIONS["system"],
    CONVERSATIONS["turns"],
    [message("user", "A shop has 8 boxes with 7 apples each and sells 39 apples. How many are left?")],
    [message("user", "Écris « bonjour » en japonais, s'il te plaît.")],
]

# Texts between bars, line for line, without escapes.
PLAIN = r"""
naïve café|Straße in München|Ελληνικά γράμματα|Русский текст, пример|العربية من اليمين إلى اليسار|עברית|ქართული|አማርኛ|தமிழ்
हिन्दी में लिखा|ภาษาไทยไม่มีช่องว่าง|中文没有空格|日本語の文章です。|한국어 문장입니다|Tiếng Việt có dấu|ﬁ ligature Å Å|½ ¼ ² ³ ₂|ⅣⅫ|①②③|٠١٢٣٤٥|१२३|１２３
“quotes” ‘single’ — dash – en … dots|👍|👍🏽|👨‍👩‍👧‍👦|🇫🇷🇩🇪|🏳️‍🌈|❤️|1️⃣2️⃣|😀😀😀|a😀b|😀 😀|🤖: hello|🧑🏿‍🚀|☃|♠♥♦♣|∀x∈ℝ: x²≥0|∑∏∫√∞≈≠≤|→←↑↓⇒|𝔘𝔫𝔦𝔠𝔬𝔡𝔢|𐍈|🀄|🥇🥈🥉|👩🏾‍💻 codes|ಠ_ಠ
let v: Vec<u32> = (0..5).collect();|SELECT * FROM t WHERE a='b';|<div class="x">&amp;</div>|for (int i = 0; i < 10; ++i) { a[i] += 1; }
x = {"key": [1, 2.5e-3, null]}|\frac{1}{2} + \sqrt{3}|$x^2 + y_1$|a->b::c<d>|snake_case camelCase PascalCase SCREAMING_CASE
http://example.com/?q=1&r=%20#z|me@example.com|C:\path\file.txt|../a/./b//c|--flag=value -x|{{template}}|/* comment */ // more
lambda x: x+1|0x1F 0b101 1e10 1_000|it's I'm you're we've they'll he'd|IT'S I'M|it’s|'s|''s|rock 'n' roll|O'Neill's
Answer: 42|Answer:42|answer : 42.|Answer: -7|Answer: $42$|\boxed{42}|8 * 7 = 56. 56 - 39 = 17. Answer: 17|The end.|The end .|the the the
THE|The|tHe|hello|Hello|HELLO WORLD|a|b|A|Z|.|,|?!|...|....|!!!!!!!!|------|======|________|~~~|```|(((()))) []{}<>|@#$%^&*|\"'`|;:
Lorem ipsum dolor sit amet, consectetur adipiscing elit.|antidisestablishmentarianism|asdfghjklqwertyuiop|zzzzzzzzzzzzzzzzzz
0|7|42|007|123|1234|12345678901234567890|3.14159|-17|+5|1,000,000|1 2 3|1+1=2|12 - 5 = 7|50%|1/2|2024-02-29|12:34:56|10a|a10|v1.2.3|£12.50|1e-5|99 bottles|x1y22z333
"""
WITH_ESCAPES = [
    "", " ", "  ", "   ", "    ", "        ", "\n", "\n\n", "\n\n\n", " \n", "\n ", "\t", "\t\t", "\r\n", "\r", " \t \n ", "a\n\nb", "a  b   c",
    "a\t b", "x \n  y", "\u3000", "a\u2003b", "\u2028", "\u0085", "line one\nline two\n\n  indented\n", " leading", "trailing ", "\n\ttab", " . ",
    " 9", "9 ", " hello", "  hello", "hello ", "hello  ", "e\u0301 combines, é does not", "zero\u200bwidth", "soft\u00adhyphen", "no\u00a0break",
    "\u202eright to left", "\ufeffmark first", "\ufffd", "\u0000null", "\u0007bell\u001b[0m", "def f(x):\n    return x ** 2\n",
    "#include <stdio.h>\r\nint main(){}", "if (a && b || !c) ? d : e;", "#!/bin/bash\nset -euo pipefail", "\tindented\twith\ttabs",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n", "a<|im_end|>b", "<|im_end|><|im_end|>", " <|im_end|> ",
    "<|im_end|", "<im_end>", "<|IM_END|>", "< |im_end|>", "<|im_start|>assistant\n", "<repo_name>x<file_sep>y", "<empty_output>", "<s></s>", "<pad>",
]


def texts():
    plain = [it for line in PLAIN.strip().splitlines() for it in line.split("|")]
    both = list(dict.fromkeys(plain + WITH_ESCAPES))
    assert len(both) == 200, len(both)
    return both


def sha256(path):
    return hashlib.file_digest(path.open("rb"), "sha256").hexdigest()


def seven_digits(values):
    return [float(f"{it:.7g}") for it in values.tolist()]


def main():
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    double = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64, attn_implementation="eager").eval()

    def encoded(prompt):
        text = prompt if isinstance(prompt, str) else tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        return text, tokenizer.encode(text, add_special_tokens=False)

    prompts, distances, leads = [], [], []
    for text, ids in map(encoded, PROMPTS):
        tokens = torch.tensor([ids])
        with torch.inference_mode():
            logits = double(tokens).logits[0]
            distances.append((model(tokens).logits[0] - logits).abs().max().item())
            made = model.generate(
                tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=NEW_TOKENS, do_sample=False, output_logits=True,
                return_dict_in_generate=True,
            )
        best = torch.stack(made.logits).squeeze(1).topk(2, dim=-1).values
        leads.append((best[:, 0] - best[:, 1]).min().item())
        positions = []
        for at in sorted({0, len(ids) // 3, 2 * len(ids) // 3, len(ids) - 1}):
            values, best_ids = logits[at].topk(20)
            positions.append({
                "position": at,
                "log_sum_exp": float(f"{logits[at].logsumexp(0).item():.7g}"),
                "best_ids": best_ids.tolist(),
                "best": seven_digits(values),
                "every_96th": seven_digits(logits[at, ::EVERY]),
            })
        prompts.append({"text": text, "ids": ids, "positions": positions, "greedy": made.sequences[0, len(ids):].tolist()})
    chats = [
        {"messages": messages, "add_generation_prompt": add, "text": tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add)}
        for messages in CONVERSATIONS.values()
        for add in (True, False)
    ]
    encodings = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)} for text in texts()]
    for it in encodings:
        it["decoded"] = tokenizer.decode(it["ids"], skip_special_tokens=True)
    provenance = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
        "made_by": "golden/smollm2/generate.py",
        "model.safetensors": sha256(MODEL / "model.safetensors"),
        "tokenizer.json": sha256(MODEL / "tokenizer.json"),
        "float32_distance": max(distances),
        "smallest_lead": min(leads),
    }
    assert min(leads) > 1e-3, leads
    document = {"provenance": provenance, "new_tokens": NEW_TOKENS, "prompts": prompts, "chats": chats, "encodings": encodings}
    (HERE / "expected.json").write_text(compact(document), encoding="utf-8")


if __name__ == "__main__":
    main()
