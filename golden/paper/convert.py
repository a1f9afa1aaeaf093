"""Turns the extracted figure data into curves.json: python3 convert.py paper_figures.json > curves.json

Input: {figure: {page, ylabel, xlabel, series: {label: [[x, y], ...]}}}, the vertices of the
vector paths in the paper's PDF, calibrated on the axis ticks. Nothing is smoothed, resampled
or rounded here; each curve only gets its unit, uncertainty and remark. One curve a line.
"""
import hashlib
import json
import sys

Y_UNIT = {
    "fig1": "percent", "fig2a": "share", "fig2b": "nats", "fig3a": "probability",
    "fig3b": "share", "fig4a": "nats", "fig4b": "tokens", "fig5a": "share", "fig5b": "nats",
    "fig6": "share", "fig7a": "tokens", "fig7b": "reward", "fig7c": "nats", "fig7d": "probability",
}
X_REGULAR = "x: +-1 update"
X_STRETCHED = "x: +-80 updates (points are 78.8 apart where evaluation every 80 updates is expected)"
GRID = "; every value is a multiple of 1/480, though 30 problems x 32 samples would allow 1/960"
REMARK = {
    "fig1": "AIME 2024 of the full DAPO run; averages are multiples of 1/480, pass and cons of 1/30",
    "fig2a": "ablation run; the base setting is not stated" + GRID,
    "fig2b": "ablation run; the base setting is not stated; falls to 0.005 without Clip-Higher",
    "fig3a": "the exact definition (old or new policy, mean or maximum) is not given",
    "fig3b": "without Dynamic Sampling; the legend says avg@32 although groups have 16 responses",
    "fig4a": "ablation run; the base setting is not stated",
    "fig4b": "ablation run; the base setting is not stated",
    "fig5a": "the caption says Overlong Reward Shaping, the legend overlong filtering" + GRID,
    "fig5b": "the caption says Overlong Reward Shaping, the legend overlong filtering",
    "fig6": "ablation run; one update with Dynamic Sampling generates more prompts than one without" + GRID,
    "fig7a": "the full DAPO run; dips from 743 to 566 tokens first, then grows with two plateaus",
    "fig7b": "the full DAPO run; not stated whether before or after filtering",
    "fig7c": "the full DAPO run; falls to 0.32 at 2,285 updates, then climbs back",
    "fig7d": "the full DAPO run; the mirror image of the entropy",
}

raw = open(sys.argv[1], "rb").read()
curves = []
for figure, body in json.loads(raw).items():
    stretched = figure == "fig1" or figure.startswith("fig7")
    for label, points in body["series"].items():
        if label.startswith("_"):
            continue
        # Interpolation needs x to rise; a vertex is never dropped or moved to make it so.
        assert all(a[0] < b[0] for a, b in zip(points, points[1:])), (figure, label)
        curves.append({
            "figure": figure.removeprefix("fig"),
            "label": label,
            "page": body["page"],
            "x_unit": "updates",
            "y_label": body["ylabel"],
            "y_unit": Y_UNIT[figure],
            "uncertainty": "y: +-0.1 % of the axis range; " + (X_STRETCHED if stretched else X_REGULAR),
            "remark": REMARK[figure],
            "points": points,
        })

print('{"source": "DAPO, arXiv 2503.14476, PDF built 27 March 2025; vector paths of the figures",')
print(' "extraction_sha256": "%s",' % hashlib.sha256(raw).hexdigest())
print(' "curves": [')
print(",\n".join("  " + json.dumps(curve, separators=(",", ":")) for curve in curves))
print(" ]}")
