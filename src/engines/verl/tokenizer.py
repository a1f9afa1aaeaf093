"""What verl makes of an arm's tokenizer, as JSON. Standard input: `model`, and `texts`, each with the harness's token ids."""

import json
import sys

asked = json.load(sys.stdin)
trusted()

from transformers import AutoConfig, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(asked["model"])
other = [text for text, ids in asked["texts"] if tokenizer(text, add_special_tokens=False)["input_ids"] != ids]
refused = None
try:
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    create_continuous_token_builder(tokenizer, hf_model_type=AutoConfig.from_pretrained(asked["model"]).model_type)
except ImportError:  # a version before 0.9
    pass
except Exception as error:
    refused = str(error)
print(json.dumps({"class": type(tokenizer).__name__, "other": other, "refused": refused}))
