"""Writes RUN/ro-crate-metadata.json: a finished run folder as a Process Run Crate 0.5 on RO-Crate 1.1.

    python3 docs/ro_crate.py RUN

The run is a CreateAction of dapo: its objects are experiment.json and the digests of the run's inputs,
its results the other files, each with its size and SHA-256. Only the standard library is needed.
"""

import datetime, hashlib, json, mimetypes, pathlib, sys, urllib.parse

NAME = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"


def entity(id, kind, **fields):
    return {"@id": id, "@type": kind} | {key: value for key, value in fields.items() if value is not None}


def refer(entities):
    return [{"@id": one["@id"]} for one in entities]


def time(milliseconds):
    when = milliseconds and datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.timezone.utc)
    return when and when.isoformat(timespec="milliseconds")


def crate(run):
    manifest, outcome = (json.loads((run / name).read_text()) for name in ("manifest.json", "outcome.json"))
    sessions = run / "sessions.jsonl"
    sessions = [json.loads(line) for line in sessions.open()] if sessions.exists() else [{}]
    began, ended = time(sessions[0].get("started_ms")), time(sessions[-1].get("ended_ms"))
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and not path.is_symlink())
    files = [entity(urllib.parse.quote(name), "File", name=name, contentSize=str((run / name).stat().st_size),
                    encodingFormat=mimetypes.guess_type(name)[0] or "application/octet-stream",
                    sha256=hashlib.sha256((run / name).read_bytes()).hexdigest())
             for name in names if name not in (NAME, "run.lock")]
    inputs = [entity("#input/" + urllib.parse.quote(name), "PropertyValue", name=name, value=digest,
                     description="SHA-256 of an input") for name, digest in manifest["inputs"].items()]
    dapo = entity("#dapo", "SoftwareApplication", name="dapo", softwareVersion=manifest["harness"],
                  url="https://arxiv.org/abs/2503.14476")
    licence = entity("#licence", "CreativeWork", name="No licence recorded",
                     description="The run does not know the licences of its data and model. Put yours here.")
    title, diverged = f"DAPO run: arm {manifest['name']}, seed {manifest['seed']}", outcome["ending"] == "diverged"
    reason = outcome.get("reason") or " ".join(map(str, [outcome["ending"], *outcome.get("not_finite", {}).values()]))
    action = entity("#run", "CreateAction", name=title, instrument={"@id": "#dapo"},
                    description=reason, startTime=began, endTime=ended,
                    actionStatus="http://schema.org/" + ("Failed" if diverged else "Completed") + "ActionStatus",
                    error=reason if diverged else None,
                    object=refer([one for one in files if one["@id"] == "experiment.json"] + inputs),
                    result=refer(one for one in files if one["@id"] != "experiment.json"))
    root = entity("./", "Dataset", name=title, description=f"Arm {manifest['arm_sha256']}, run {manifest['run_key']}.",
                  license={"@id": "#licence"}, conformsTo={"@id": PROFILE}, hasPart=refer(files),
                  mentions={"@id": "#run"}, datePublished=ended)
    about = entity(NAME, "CreativeWork", about={"@id": "./"}, conformsTo={"@id": "https://w3id.org/ro/crate/1.1"})
    profile = entity(PROFILE, "CreativeWork", name="Process Run Crate", version="0.5")
    context = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
    return {"@context": context, "@graph": [about, root, licence, profile, dapo, action, *inputs, *files]}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python3 docs/ro_crate.py RUN, the folder of a run that has ended")
    run = pathlib.Path(sys.argv[1])
    missing = [name for name in ("manifest.json", "outcome.json") if not (run / name).is_file()]
    if missing:
        sys.exit(f"{run} is no folder of a run that has ended: it has no {' and no '.join(missing)}")
    try:
        (run / NAME).write_text(json.dumps(crate(run), indent=2) + "\n")
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{run}: a record cannot be read, or {NAME} not be written: {error}")
