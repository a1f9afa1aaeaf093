"""How the generators of this folder write numbers and JSON."""

import json


def f32(tensor):
    """Row-major values as the shortest decimal text that gives the same float32 back."""
    return [float(str(value)) for value in tensor.flatten().numpy()]


def compact(value, indent=0):
    """JSON with one line for each innermost list."""
    pad = "  " * indent
    if isinstance(value, dict):
        inner = ",\n".join(f"{pad}  {json.dumps(k)}: {compact(v, indent + 1)}" for k, v in value.items())
        text = f"{{\n{inner}\n{pad}}}"
    elif isinstance(value, list) and any(isinstance(v, (list, dict)) for v in value):
        text = "[\n" + ",\n".join(f"{pad}  {compact(v, indent + 1)}" for v in value) + f"\n{pad}]"
    else:
        text = json.dumps(value)
    return text if indent else text + "\n"
