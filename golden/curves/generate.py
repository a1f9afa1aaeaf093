"""Curves of small made-up runs, as trackers and verl write them: `python generate.py`, with wandb, tensorboard, trackio, torch
and verl's tracking.py (VERL_TRACKING names the file) at the versions of README.md. Values are an arithmetic sequence per run."""

import csv, importlib.util, json, os, pathlib, struct, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).parent
STEPS = range(0, 81, 10)


def value(seed, step):
    return 0.2 + 0.01 * seed + 0.003 * step + 0.001 * ((step * 7 + seed * 3) % 11)


def tokens(step):
    return step * 4096


def tensorboard():
    from torch.utils.tensorboard import SummaryWriter

    for form, new_style in (("simple", False), ("tensor", True)):
        folder = HERE / f"tensorboard-{form}" / "seed_1"
        for old in folder.glob("events*"):
            old.unlink()
        with SummaryWriter(str(folder)) as writer:
            for step in STEPS:
                walltime = 1_700_000_000 + 60.0 * step
                writer.add_scalar("val/acc", value(1, step), step, walltime=walltime, new_style=new_style)
                writer.add_scalar("train/num_tokens", tokens(step), step, walltime=walltime, new_style=new_style)
        (made,) = folder.glob("events*")
        made.rename(folder / "events.out.tfevents.1700000000.host.1.0")


def wandb_history():
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true")
    import wandb
    from wandb.proto import wandb_internal_pb2 as protocol

    with tempfile.TemporaryDirectory() as folder:
        run = wandb.init(project="curves", name="dapo-seed1", dir=folder)
        for step in STEPS:
            run.log({"train/loss": 1 / (step + 1)}, step=step)
            if step % 20 == 0:
                run.log({"val/acc": value(1, step), "train/num_tokens": tokens(step)}, step=step)
        run.finish()
        (path,) = pathlib.Path(folder).glob("wandb/offline-run-*/*.wandb")
        rows = []
        for data in wandb_records(path.read_bytes()):
            record = protocol.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({(it.key or "/".join(it.nested_key)): json.loads(it.value_json) for it in items})
    for place, row in enumerate(rows):
        row["_runtime"], row["_timestamp"] = 60.0 * place, 1_700_000_000 + 60.0 * place
    names = ["_step", "_runtime", "_timestamp", "train/loss", "val/acc", "train/num_tokens"]
    # As `run.history().to_csv()`: pandas puts the row's number first, without a name.
    with open(HERE / "wandb-history-seed1.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([""] + names)
        writer.writerows([[place] + [row.get(name, "") for name in names] for place, row in enumerate(rows)])


def wandb_records(data):
    """LevelDB's log format after a header of seven bytes."""
    at, part = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield part
            part = b""


def wandb_export():
    """By W&B's documentation alone: its web page makes this file, and cannot be had offline."""
    runs = [("grpo-seed1", 1), ("grpo-seed2", 2), ("dapo-seed1", 3), ("dapo-seed2", 5)]
    names = [f"{run} - val/acc{part}" for run, _ in runs for part in ("", "__MIN", "__MAX")]
    with open(HERE / "wandb-export.csv", "w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["Step"] + names)
        for step in STEPS:
            values = [[value(seed, step)] * 3 if step < 80 or seed != 5 else [""] * 3 for _, seed in runs]
            writer.writerow([step] + sum(values, []))


def trackio_metric():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRACKIO_DIR"] = folder
        import trackio

        trackio.init(project="curves", name="grpo-seed1", config={"seed": 1})
        for step in STEPS:
            trackio.log({"val/acc": value(1, step)}, step=step)
        trackio.finish()
        command = [pathlib.Path(sys.executable).with_name("trackio"), "get", "metric", "--project", "curves"]
        command += ["--run", "grpo-seed1", "--metric", "val/acc", "--json"]
        made = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    for place, point in enumerate(made["values"]):
        point["timestamp"] = f"2026-01-01T00:{place:02}:00.000000+00:00"
    (HERE / "trackio-metric.json").write_text(json.dumps(made, indent=2) + "\n")


def verl_log():
    spec = importlib.util.spec_from_file_location("tracking", os.environ["VERL_TRACKING"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    os.environ["VERL_FILE_LOGGER_PATH"] = str(HERE / "verl-seed1.jsonl")
    log = module.FileLogger("curves", "seed1")
    for step in STEPS:
        data = {"actor/grad_norm": float("nan") if step == 30 else 0.5, "perf/total_num_tokens": 40960 if step else 0}
        if step % 20 == 0:
            data["val-core/aime/acc/mean@32"] = value(1, step)
        log.log(data, step=step)
    log.finish()


for make in sys.argv[1:] or ["tensorboard", "wandb_history", "wandb_export", "trackio_metric", "verl_log"]:
    globals()[make]()
