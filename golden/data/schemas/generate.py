"""Question sets with the keys and types of published ones, as JSON lines and as parquet.

    python golden/data/schemas/generate.py        # pyarrow 26.0.1

The rows are our own; keys, nesting and types are those of the data set's card on the Hub, whose
name stands beside each case. expected.json has what is to be read of each row.
"""

import json
import pathlib

import pyarrow
import pyarrow.parquet

HERE = pathlib.Path(__file__).parent


def user(text):
    return [{"content": text, "role": "user"}]


CASES = {
    # openai/gsm8k
    "gsm8k": [
        ({"question": "Ann has 3 pens and buys 4. How many pens has she?",
          "answer": "She has 3 + 4 = <<3+4=7>>7 pens.\n#### 7"}, "7"),
        ({"question": "A hall has 40 rows of 30 seats. How many seats?",
          "answer": "40 * 30 = <<40*30=1200>>1200\n#### 1,200"}, "1200"),
    ],
    # HuggingFaceH4/MATH-500
    "math-500": [
        ({"problem": "Write $\\frac{2}{4}$ in lowest terms.",
          "solution": "Halving both, we get $\\boxed{\\dfrac{1}{2}}$.",
          "answer": "\\frac{1}{2}", "subject": "Prealgebra", "level": 1,
          "unique_id": "test/prealgebra/1.json"}, "\\frac{1}{2}"),
        ({"problem": "For which $x$ is $x^2 \\le 4$?",
          "solution": "We need $-2 \\le x \\le 2$, so $x \\in \\boxed{[-2, 2]}$.",
          "answer": "[-2,2]", "subject": "Algebra", "level": 3,
          "unique_id": "test/algebra/2.json"}, "[-2,2]"),
    ],
    # math-ai/amc23
    "amc23": [({"id": 0, "question": "What is $5^2 + 2$?", "answer": "27.0",
                "url": "https://example.org/amc/1"}, "27")],
    # AI-MO/aimo-validation-amc
    "amc-floats": [({"id": 7, "problem": "What is $12 \\cdot 12 - 2$?", "answer": 142.0,
                     "url": "https://example.org/amc/2"}, "142")],
    # open-r1/DAPO-Math-17k-Processed
    "dapo-math-17k-processed": [
        ({"prompt": "What is $6 \\cdot 6 - 2$?", "solution": "34", "data_source": "math_dapo",
          "source_prompt": user("Solve the following math problem. What is $6 \\cdot 6 - 2$?"),
          "ability": "MATH", "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"},
          "extra_info": {"index": "9a9b6eb4-0000-4000-8000-000000000001"}}, "34"),
    ],
    # Skywork/Skywork-OR1-RL-Data
    "skywork-or1": [
        ({"data_source": "train-math-numinamath1.5_olympiads", "prompt": user("What is $2 + 2$?"),
          "ability": "math", "reward_model": {"ground_truth": "[\"4\"]", "style": "rule"},
          "extra_info": {"index": 3, "model_difficulty": {"DeepSeek-R1-Distill-Qwen-7B": 2}}}, "4"),
    ],
    # opencompass/AIME2025
    "aime-2025": [({"question": "Find the largest three-digit multiple of 7.", "answer": "994"}, "994")],
    # yentinglin/aime_2025
    "aime-2025-solutions": [
        ({"id": 1, "problem": "Find $7^3 - 1$.", "answer": "342",
          "solution": "Since $7^3 = 343$, it is $\\boxed{342}$.",
          "url": "https://example.org/aime", "year": 2025}, "342"),
    ],
}


def main():
    expected = {}
    for name, rows in CASES.items():
        lines = [json.dumps(row) for row, _ in rows]
        (HERE / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        table = pyarrow.Table.from_pylist([row for row, _ in rows])
        pyarrow.parquet.write_table(table, HERE / f"{name}.parquet")
        question = lambda row: next(row[key] for key in ("question", "problem", "prompt") if key in row)
        text = lambda value: value if isinstance(value, str) else value[0]["content"]
        expected[name] = [[text(question(row)), answer] for row, answer in rows]
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
