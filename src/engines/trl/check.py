"""The values that the installed TRL gives the settings on standard input, as JSON on standard output."""

trusted()

import json
import sys
import tempfile

from trl import GRPOConfig

asked = json.load(sys.stdin)
config = GRPOConfig(output_dir=tempfile.mkdtemp(), **asked)
found = {name: getattr(config, name) for name in asked}
print(json.dumps({name: getattr(value, "value", value) for name, value in found.items()}))
