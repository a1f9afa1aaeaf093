"""AdamW and gradient clipping of torch over five steps, for a few shapes and settings.

    python golden/adamw/generate.py        # with golden/requirements.txt

Parameters, gradients and moments are float32; the float64 run beside it says how much of
the last digits is rounding. Rerunning changes no byte.
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from json_text import compact, f32

HERE = pathlib.Path(__file__).parent
SHAPES = {"bias": [5], "embedding": [7, 3], "one": [1], "projection": [4, 6], "unused": [3]}
STEPS = 5
DEFAULT = dict(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.1, max_gradient_norm=1.0)
CASES = {
    "clipped": dict(seed=31, gradient_scale=3.0, settings=DEFAULT),
    "not-clipped": dict(seed=32, gradient_scale=0.02, settings=DEFAULT),
    "no-decay-small-betas": dict(seed=33, gradient_scale=0.5, settings=DEFAULT | dict(
        beta1=0.8, beta2=0.95, weight_decay=0.0, learning_rate=0.02)),
    "large-epsilon": dict(seed=34, gradient_scale=1e-3, settings=DEFAULT | dict(epsilon=1e-3)),
}


def draws(case):
    """Initial parameters and the gradients of every step, float32. One tensor never gets
    a gradient other than zero: it only decays."""
    generator = torch.Generator().manual_seed(case["seed"])
    random = lambda shape: torch.randn(shape, generator=generator)
    start = {name: random(shape) for name, shape in SHAPES.items()}
    gradients = []
    for step in range(STEPS):
        scale = case["gradient_scale"] * (1 + step)
        gradients.append({name: random(shape) * scale * (name != "unused") for name, shape in SHAPES.items()})
    return start, gradients


def run(start, gradients, settings, dtype):
    """Parameters after each step and the gradient norm before clipping."""
    weights = {name: w.to(dtype).clone().requires_grad_() for name, w in start.items()}
    adam = torch.optim.AdamW(
        weights.values(), lr=settings["learning_rate"], betas=(settings["beta1"], settings["beta2"]),
        eps=settings["epsilon"], weight_decay=settings["weight_decay"], foreach=False)
    after = []
    for step in gradients:
        for name, gradient in step.items():
            weights[name].grad = gradient.to(dtype).clone()
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), settings["max_gradient_norm"], foreach=False)
        adam.step()
        state = {name: adam.state[w] for name, w in weights.items()}
        after.append({
            "gradient_norm": norm.item(),
            "parameters": {name: w.detach().clone() for name, w in weights.items()},
            "first_moments": {name: s["exp_avg"].clone() for name, s in state.items()},
            "second_moments": {name: s["exp_avg_sq"].clone() for name, s in state.items()},
        })
    return after


def plain(tensors):
    return {name: f32(tensor) for name, tensor in tensors.items()}


def main():
    torch.set_num_threads(1)
    cases = []
    for name, case in CASES.items():
        start, gradients = draws(case)
        after = run(start, gradients, case["settings"], torch.float32)
        wide = run(start, gradients, case["settings"], torch.float64)
        noise = max((a["parameters"][n].double() - b["parameters"][n]).abs().max().item()
                    for a, b in zip(after, wide) for n in SHAPES)
        assert noise < 1e-6, f"{name}: float32 noise {noise}"
        clipped = [a["gradient_norm"] > case["settings"]["max_gradient_norm"] for a in after]
        print(f"{name}: clipped {clipped}, largest float32 noise {noise:.1e}")
        cases.append({
            "name": name, "settings": case["settings"], "largest_difference_to_float64": noise,
            "shapes": SHAPES, "start": plain(start),
            "steps": [{"gradients": plain(g), "gradient_norm": f32(torch.tensor([a["gradient_norm"]]))[0],
                       "parameters": plain(a["parameters"]), "first_moments": plain(a["first_moments"]),
                       "second_moments": plain(a["second_moments"])}
                      for g, a in zip(gradients, after)],
        })
    (HERE / "adamw.json").write_text(compact({
        "provenance": {"command": "python golden/adamw/generate.py", "torch": torch.__version__,
                       "dtype": "float32", "threads": 1,
                       "seeds": {name: case["seed"] for name, case in CASES.items()}},
        "cases": cases}))


if __name__ == "__main__":
    main()
