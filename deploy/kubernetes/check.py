"""Checks the manifests of this folder: Kubernetes' own kinds by kubernetes-validate (strict), KEDA's by a schema of ours,
and what one manifest says of another.

usage: deploy/kubernetes/check.sh, which makes the Python environment that this needs
"""

import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).parent
KUBERNETES = "1.30"


def check_kind(document, scaled_object):
    """Why the document is not what its kind says; None: it is."""
    try:
        if document["apiVersion"].startswith("keda.sh/"):
            jsonschema.validate(document, scaled_object)
        else:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
        return error.message
    return None


def check_references(documents):
    """What the documents say of each other, and is not so."""
    named = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    service = named[("Service", "temper-server")]
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    for document in documents:
        if document["kind"] != "ScaledObject":
            continue
        target = named.get(("Deployment", document["spec"]["scaleTargetRef"]["name"]))
        if target is None:
            yield "%s scales a Deployment that is not there" % document["metadata"]["name"]
            continue
        args = target["spec"]["template"]["spec"]["containers"][0]["args"]
        url = document["spec"]["triggers"][0]["metadata"]["url"]
        key = url.rpartition("key=")[2]
        if "--key=" + key not in args:
            yield "%s asks for key %s, and its workers have another" % (document["metadata"]["name"], key)
        host = "http://%s.%s.svc:%d/" % (service["metadata"]["name"], service["metadata"]["namespace"], ports["pages"])
        if not url.startswith(host):
            yield "%s asks at %s, and the pages are at %s" % (document["metadata"]["name"], url, host)
        if "--server=%s.%s.svc:%d" % (service["metadata"]["name"], service["metadata"]["namespace"], ports["grpc"]) not in args:
            yield "%s connects elsewhere than the service" % target["metadata"]["name"]


def main():
    scaled_object = json.loads((FOLDER / "scaledobject.schema.json").read_text())
    documents = [d for path in sorted(FOLDER.glob("*.yaml")) for d in yaml.safe_load_all(path.read_text())]
    errors = []
    for document in documents:
        why = check_kind(document, scaled_object)
        if why is not None:
            errors.append("%s %s: %s" % (document["kind"], document["metadata"]["name"], why))
        # A check that accepts anything is none.
        if check_kind({**document, "spec": {**document["spec"], "nonsense": 1}}, scaled_object) is None:
            errors.append("%s: a field that is not there was accepted" % document["kind"])
    errors += check_references(documents)
    for error in errors:
        print("deploy/kubernetes: " + error, file=sys.stderr)
    print("%d manifests, %d errors" % (len(documents), len(errors)))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
