#!/usr/bin/env python3
"""What the paper's own curves and tables say of the claims that cite them.

    python3 golden/paper/evidence.py

Reads every `paper` check of experiments/claims.toml and reports/*/claims.toml, computes it from curves.json
and tables.json beside this file, and writes evidence.json. Each curve and row is of one run, so a result says
what the figure shows, not how certain it is. Windows are shares of the x-axis that all curves of a check have;
between vertices a curve is a straight line. The order of each sum is stated by the code: evidence.json is the
same on every machine.
"""
import json
import math
import pathlib
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
CURVES = json.loads((HERE / "curves.json").read_text())["curves"]
TABLES = json.loads((HERE / "tables.json").read_text())["tables"]
SIGN = {"higher": 1.0, "lower": -1.0}


def the(items, **fields):
    [item] = [item for item in items if all(item[key] == value for key, value in fields.items())]
    return item


def curve(figure, label):
    return the(CURVES, figure=figure, label=label)


def row(table, label):
    return the(the(TABLES, id=table)["rows"], label=label)


def number(value):
    size = abs(value)
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"


def in_order(values):
    """A plain sum: newer Pythons' `sum` compensates."""
    total = 0.0
    for value in values:
        total += value
    return total


def interpolated(points, x):
    after = next(index for index, point in enumerate(points) if point[0] >= x)
    right_x, right_y = points[after]
    if right_x == x:
        return right_y
    left_x, left_y = points[after - 1]
    return left_y + (right_y - left_y) * (x - left_x) / (right_x - left_x)


def common_range(curves, window):
    low = max(each["points"][0][0] for each in curves)
    high = min(each["points"][-1][0] for each in curves)
    assert high > low, "the curves have no common range"
    return [low + (high - low) * window[end] for end in ("from_share", "to_share")]


def reduced(curve, ends, reduce):
    points = curve["points"]
    # A computed end may be outside by a rounding error.
    first, last = (min(max(x, points[0][0]), points[-1][0]) for x in ends)
    inner = [tuple(point) for point in points if ends[0] < point[0] < ends[1]]
    line = [(ends[0], interpolated(points, first)), *inner, (ends[1], interpolated(points, last))]
    if reduce != "mean":
        return {"minimum": min, "maximum": max}[reduce](y for _, y in line)
    # The mean is the area under the lines: vertices on a straight line were dropped from the file.
    area = 0.0
    for (x, y), (next_x, next_y) in zip(line, line[1:]):
        area += (next_x - x) * (y + next_y) / 2.0
    return area / (ends[1] - ends[0])


def window_words(window):
    percent = lambda share: f"{round(share * 1000.0) / 10.0:g}"
    start, end = window["from_share"], window["to_share"]
    if (start, end) == (0.0, 1.0):
        return "in the all updates"
    if end == 1.0:
        return f"in the last {percent(1.0 - start)} % of the updates"
    if start == 0.0:
        return f"in the first {percent(end)} % of the updates"
    return f"at {percent(start)} to {percent(end)} % of the updates"


def difference(check):
    one, other = (curve(check["figure"], check[side]) for side in ("arm", "reference"))
    ends = common_range([one, other], check["window"])
    a, b = (reduced(each, ends, check["reduce"]) for each in (one, other))
    words = (f"Fig. {check['figure']}, {check['reduce']} over updates {ends[0]:.0f} to {ends[1]:.0f}: "
             f"{number(a)} with “{one['label']}”, {number(b)} with “{other['label']}”")
    return words, a - b, one["y_unit"], SIGN[check["direction"]] * (a - b) > 0.0, one["remark"]


def contrast(check):
    one = curve(check["figure"], check["label"])
    before, after = (reduced(one, common_range([one], check[part]), "mean") for part in ("early", "late"))
    words = (f"Fig. {check['figure']}: {number(before)} {window_words(check['early'])}, "
             f"{number(after)} {window_words(check['late'])}")
    value = after - before
    return words, value, one["y_unit"], SIGN[check["direction"]] * value > 0.0, one["remark"]


def level(check):
    one, bound = curve(check["figure"], check["label"]), check["bound"]
    ends = common_range([one], check["window"])
    value = reduced(one, ends, check["reduce"])
    words = (f"Fig. {check['figure']}, {check['reduce']} over updates {ends[0]:.0f} to {ends[1]:.0f}: "
             f"{number(value)}, against {bound:g}")
    return words, value, one["y_unit"], SIGN[check["direction"]] * (value - bound) > 0.0, one["remark"]


def first_reaches(check):
    """The first vertex of two curves at or above a published level."""
    one, other = (curve(check["figure"], check[side]) for side in ("arm", "reference"))
    published = row(check["table"], check["row"])["value"]
    height = published if one["y_unit"] == "percent" else published / 100.0
    first = lambda each: next((x for x, y in each["points"] if y >= height), None)
    end = lambda each: each["points"][-1][0]

    def words(each):
        if first(each) is None:
            return f"never in {end(each):.0f} updates with “{each['label']}”"
        return f"first at {first(each):.0f} updates with “{each['label']}”"

    # The last update bounds the ratio from below if the other curve never arrives.
    value = first(one) - (first(other) if first(other) is not None else end(other))
    text = f"Fig. {check['figure']}, level {number(height)}: {words(one)}, {words(other)}"
    return text, value, "updates", value < 0.0, one["remark"]


def rows(check):
    def compared(sides):
        one, other = (row(sides["table"], sides[side]) for side in ("arm", "reference"))
        source = the(TABLES, id=sides["table"])["source"]
        words = f"{one['value']:.0f} for “{one['label']}”, {other['value']:.0f} for “{other['label']}” ({source})"
        return words, one["value"] - other["value"]

    words, value = compared(check)
    if "again" in check:
        words += f"; run again: {compared(check['again'])[0]}"
    table = the(TABLES, id=check["table"])
    return words, value, table["unit"], SIGN[check["direction"]] * value > 0.0, table["remark"]


def correlation(check):
    x, y = (curve(check[f"{axis}_figure"], check[f"{axis}_label"]) for axis in "xy")
    start, end = common_range([x, y], check["window"])
    pairs = [(value, interpolated(y["points"], at)) for at, value in x["points"] if start <= at <= end]
    mean_x, mean_y = (in_order(pair[side] for pair in pairs) / len(pairs) for side in (0, 1))
    common = square_x = square_y = 0.0
    for a, b in pairs:
        common += (a - mean_x) * (b - mean_y)
        square_x += (a - mean_x) * (a - mean_x)
        square_y += (b - mean_y) * (b - mean_y)
    value = common / (math.sqrt(square_x) * math.sqrt(square_y))
    direction, bound = check.get("direction"), check["bound"]
    agrees = SIGN[direction] * (value - bound) > 0.0 if direction else abs(value) < bound
    words = (f"Figs {x['figure']} and {y['figure']}, updates {start:.0f} to {end:.0f}: correlation "
             f"{value:.2f} over {len(pairs)} points of one run")
    return words, value, "correlation", agrees, x["remark"]


KINDS = {"difference": difference, "contrast": contrast, "level": level, "first-reaches": first_reaches,
         "rows": rows, "correlation": correlation}


def main():
    root = HERE.parent.parent
    found = []
    for path in [root / "experiments/claims.toml", *sorted(root.glob("reports/*/claims.toml"))]:
        for claim in tomllib.loads(path.read_text())["claims"]:
            for part in claim.get("parts", []):
                if "paper" in part and part["paper"] not in [each["check"] for each in found]:
                    words, value, unit, agrees, remark = KINDS[part["paper"]["kind"]](part["paper"])
                    found.append({"check": part["paper"], "words": words, "value": value, "unit": unit,
                                  "agrees": agrees, "remark": f"one run; {remark}"})
    (HERE / "evidence.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
