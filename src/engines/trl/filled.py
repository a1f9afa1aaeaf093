"""Every value of the installed GRPOConfig that has the settings on standard input, as JSON on standard output."""

trusted()

import dataclasses
import json
import sys
import tempfile

from trl import GRPOConfig

asked = json.load(sys.stdin)
names = [field.name for field in dataclasses.fields(GRPOConfig) if field.init]
known = {name: value for name, value in asked.items() if name in names}
# Without a card transformers refuses bf16; what is computed where is not asked here.
config = GRPOConfig(**{"output_dir": tempfile.mkdtemp(), "use_cpu": True, **known})
found = {name: getattr(config, name) for name in names}
print("\n" + json.dumps({name: getattr(value, "value", value) for name, value in found.items()}, default=str))
