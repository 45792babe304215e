#!/usr/bin/env bash
# The main job on a real trained model: PP-OCR's recogniser and angle classifier read a line of text, untuned and tuned.
# usage: examples/demo/run.sh FOLDER_OF_THE_BINARIES
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$(cd "$1" && pwd)
venv=$root/.venv
if [ ! -e "$venv/ready" ]; then
  echo "temper: fetching Python packages into .venv (about 120 MiB, a minute): numpy, pillow, onnxruntime and the wheel that carries the models"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"
  touch "$venv/ready"
fi
if [ ! -e "$root/.demo/models/ready" ]; then
  mkdir -p "$root/.demo/models"
  "$venv/bin/pip" download -q --disable-pip-version-check --no-deps -d "$root/.demo" rapidocr-onnxruntime==1.4.4
  "$venv/bin/python" -m zipfile -e "$root"/.demo/rapidocr_onnxruntime-*.whl "$root/.demo/wheel"
  cp "$root"/.demo/wheel/rapidocr_onnxruntime/models/*.onnx "$root/.demo/models/"
  touch "$root/.demo/models/ready"
fi
exec "$venv/bin/python" "$here/demo.py" --bin "$bin" --models "$root/.demo/models" --work "$root/.demo"
