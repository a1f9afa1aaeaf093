"""Checks a run folder's statement and crate with other people's programs.

    python golden/provenance/check.py RUN     checks, prints what each said

With CONTEXTS in the environment, the two JSON-LD contexts are read from that folder
(ro-crate-1.1.jsonld, workflow-run.json) and not from the network.

RUN holds statement.json and ro-crate-metadata.json. Packages: see requirements.txt beside this file.
"""

import json
import os
import pathlib
import sys

from google.protobuf import json_format
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1 import statement_pb2
from rocrate_validator import models, services
from rocrate_validator.utils import http


CONTEXTS = {
    "https://w3id.org/ro/crate/1.1/context": "ro-crate-1.1.jsonld",
    "https://w3id.org/ro/terms/workflow-run/context": "workflow-run.json",
}


def local_contexts(folder):
    """Answers the validator's requests for contexts from files."""

    class Response:
        status_code = 200
        ok = True
        headers = {"Content-Type": "application/ld+json"}

        def __init__(self, url):
            self.text = (pathlib.Path(folder) / CONTEXTS[url]).read_text()
            self.content = self.text.encode()

        def json(self):
            return json.loads(self.text)

    http.HttpRequester.get = lambda _self, url, **_options: Response(url)


def statement(text):
    """Parses strictly: a field that the schema does not know is an error."""
    parsed = json_format.Parse(text, statement_pb2.Statement())
    Statement.copy_from_pb(parsed).validate()
    return parsed


def crate(run):
    if "CONTEXTS" in os.environ:
        local_contexts(os.environ["CONTEXTS"])
    settings = services.ValidationSettings(
        rocrate_uri=models.URI(str(run)),
        profile_identifier="process-run-crate",
        requirement_severity=models.Severity.RECOMMENDED,
    )
    result = services.validate(settings)
    return [(issue.severity.name, issue.check.identifier, issue.message) for issue in result.get_issues()]


def main(run):
    run = pathlib.Path(run)
    parsed = statement((run / "statement.json").read_bytes())
    print(f"in-toto: {len(parsed.subject)} subjects, {parsed.predicate_type}")
    issues = crate(run)
    print(f"roc-validator: {len(issues)} issues")
    for issue in issues:
        print("  ", *issue)
    sys.exit(1 if any(issue[0] == "REQUIRED" for issue in issues) else 0)


if __name__ == "__main__":
    main(sys.argv[1])
