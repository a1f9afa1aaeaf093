"""Checks a run folder's attestation and crate with other people's programs.

    python golden/provenance/check.py RUN PUBLIC_KEY     checks, prints what each said
    python golden/provenance/check.py --sign RUN OUT           makes OUT/signed-elsewhere.json and .pub

With CONTEXTS in the environment, the two JSON-LD contexts are read from that folder
(ro-crate-1.1.jsonld, workflow-run.json) and not from the network.

RUN holds attestation.json (signed) and ro-crate-metadata.json. Packages: see requirements.txt beside this file.
"""

import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1 import statement_pb2
from rocrate_validator import models, services
from rocrate_validator.utils import http
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, SSlibKey

TYPE = "application/vnd.in-toto+json"


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


def pae(payload):
    return b"DSSEv1 %d %s %d " % (len(TYPE), TYPE.encode(), len(payload)) + payload


def statement(payload):
    """Parses strictly: a field that the schemas do not know is an error."""
    parsed = json_format.Parse(payload, statement_pb2.Statement())
    Statement.copy_from_pb(parsed).validate()
    predicate = json.loads(payload)["predicate"]
    provenance = json_format.ParseDict(predicate, provenance_pb2.Provenance())
    return parsed, provenance


def signature(envelope, public_pem):
    key_id = envelope["signatures"][0]["keyid"]
    key = SSlibKey.from_crypto(load_pem_public_key(public_pem), keyid=key_id)
    dsse = Envelope.from_dict(json.loads(json.dumps(envelope)))
    accepted = dsse.verify([key], 1)
    payload = base64.b64decode(envelope["payload"])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "key.pub").write_bytes(public_pem)
        (folder / "message").write_bytes(pae(payload))
        (folder / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key.pub", "-rawin"]
        command += ["-in", "message", "-sigfile", "sig"]
        openssl = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return sorted(accepted), openssl.stdout.strip() or openssl.stderr.strip()


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


def main(run, public_key):
    run = pathlib.Path(run)
    envelope = json.loads((run / "attestation.json").read_text())
    parsed, provenance = statement(base64.b64decode(envelope["payload"]))
    print(f"in-toto: {len(parsed.subject)} subjects, builder {provenance.run_details.builder.id}")
    accepted, openssl = signature(envelope, pathlib.Path(public_key).read_bytes())
    print(f"securesystemslib: accepted {accepted}")
    print(f"openssl: {openssl}")
    issues = crate(run)
    print(f"roc-validator: {len(issues)} issues")
    for issue in issues:
        print("  ", *issue)
    required = [issue for issue in issues if issue[0] == "REQUIRED"]
    sys.exit(1 if required or "Success" not in openssl else 0)


def sign(run, out):
    """The same payload, signed by securesystemslib with a key that is then thrown away."""
    envelope = json.loads((pathlib.Path(run) / "attestation.json").read_text())
    private = Ed25519PrivateKey.generate()
    signer = CryptoSigner(private)
    dsse = Envelope(base64.b64decode(envelope["payload"]), TYPE, {})
    dsse.sign(signer)
    out = pathlib.Path(out)
    (out / "signed-elsewhere.json").write_text(json.dumps(dsse.to_dict(), indent=2) + "\n")
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (out / "signed-elsewhere.pub").write_bytes(pem)


if __name__ == "__main__":
    if sys.argv[1] == "--sign":
        sign(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
