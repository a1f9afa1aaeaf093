"""Hands curves to a tracker: bridge.py TRACKER PROJECT, one JSON object a line on stdin. Without PROJECT it only tries
whether this Python has the tracker.

{"run": NAME, "group": ARM, "config": {...}} begins a run, {"run": NAME, "step": UPDATES, "values": {...}}
logs values, {"run": NAME, "end": ENDING} ends it; a run without is "unfinished". Each time a run begins, it is a new
one of the tracker, so that no point stands in one twice. Whether a tracker is on this machine or elsewhere, and
who the user is, its own variables say (WANDB_MODE, MLFLOW_TRACKING_URI, ...).
"""

import importlib
import json
import signal
import sys

# Endings that are no end of a training, as mlflow calls them.
FAILED = {"diverged": "FAILED", "failed": "FAILED", "unfinished": "KILLED"}


class Wandb:
    def __init__(self, wandb, project):
        self.wandb, self.project = wandb, project

    def begin(self, name, group, config):
        return self.wandb.init(
            project=self.project, name=name, group=group, config=config, reinit="create_new"
        )

    def log(self, run, step, values):
        run.log(values, step=step)

    def end(self, run, ending):
        run.finish(exit_code=int(ending in FAILED))


class Mlflow:
    def __init__(self, mlflow, project):
        mlflow.set_experiment(project)
        self.client = mlflow.MlflowClient()
        self.experiment = mlflow.get_experiment_by_name(project).experiment_id

    def begin(self, name, group, config):
        run = self.client.create_run(self.experiment, run_name=name, tags={"group": group})
        for key, value in flat(config):
            self.client.log_param(run.info.run_id, key, str(value)[:500])
        return run.info.run_id

    def log(self, run, step, values):
        for name, value in values.items():
            self.client.log_metric(run, name, value, step=step)

    def end(self, run, ending):
        self.client.set_terminated(run, FAILED.get(ending, "FINISHED"))


class Trackio:
    """Trackio keeps no ending of a run."""

    def __init__(self, trackio, project):
        self.trackio, self.project = trackio, project

    def begin(self, name, group, config):
        return self.trackio.init(
            project=self.project, name=name, group=group, config=config, resume="never"
        )

    def log(self, run, step, values):
        run.log(values, step=step)

    def end(self, run, ending):
        run.finish()


def flat(config, prefix=""):
    for key, value in config.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def main():
    name, *project = sys.argv[1:]
    # A folder `wandb` or `mlflow` in the working folder is what a tracker wrote, not its package.
    sys.path = [path for path in sys.path if path]
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        sys.exit(f"it has no package {name} ({error}): install it there, or name the Python that has it with --tracker-python")
    if not project:
        return
    tracker = {"wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio}[name](module, *project)
    # Ctrl-C reaches the writer of stdin, too, which has more to say before it closes it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    runs = {}
    for line in sys.stdin:
        said = json.loads(line)
        run = said["run"]
        if "config" in said:
            runs[run] = tracker.begin(run, said["group"], said["config"])
        elif "values" in said:
            tracker.log(runs[run], said["step"], said["values"])
        else:
            tracker.end(runs.pop(run), said["end"])
    for run in runs.values():
        tracker.end(run, "unfinished")


main()
