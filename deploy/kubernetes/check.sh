#!/usr/bin/env bash
# Checks the manifests of this folder (check.py), in a Python environment of its own under build-deploy/ that pip fills
# from the package index it is configured with.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=build-deploy/venv
[ -x "$venv/bin/kubernetes-validate" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q kubernetes-validate==1.37.0; }
"$venv/bin/python" deploy/kubernetes/check.py
