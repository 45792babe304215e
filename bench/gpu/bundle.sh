#!/usr/bin/env bash
# Makes one file with all that bench/gpu/run.py needs on a GPU machine without a network: Temper's programs and tests, the
# libraries that they load (the C library apart), models that are made here.
# usage: bench/gpu/bundle.sh [OUT.tar.xz]      after: ninja -C build temper temper-server temper-worker conformance_test
# There: tar xf OUT.tar.xz && temper-gpu/run.py
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-temper-gpu.tar.xz}
most_bytes=$((64 << 20))
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bundle=$folder/temper-gpu
mkdir -p "$bundle"/{bin,lib,models}

programs=(build/bin/temper build/bin/temper-server build/bin/temper-worker build/tests/conformance_test)
for program in "${programs[@]}"; do
  [ -x "$program" ] || { echo "bundle.sh: $program is not built" >&2; exit 1; }
done
install -s -t "$bundle/bin" "${programs[@]}"
ldd "${programs[@]}" | awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libgcc_s)\.so' | xargs install -t "$bundle/lib"
install -m 644 bench/models/*.onnx.gz "$bundle/models"
install -t "$bundle" bench/gpu/run.py bench/gpu/peers.py bench/models.py
XZ_OPT="-9 -T0" tar -C "$folder" -cJf "$out" temper-gpu
bytes=$(stat -c %s "$out")
[ "$bytes" -le "$most_bytes" ] || { echo "bundle.sh: $out has $bytes bytes, more than $most_bytes" >&2; exit 1; }
echo "$out: $bytes bytes"
