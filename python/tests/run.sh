#!/usr/bin/env bash
# The Python tests, on the binaries of a build folder, in an environment that pip fills once. Ends with 77, which ctest
# takes for skipped, where the packages can not be had.
# usage: python/tests/run.sh [--torch] [--python PYTHON] BUILD_FOLDER [PYTEST_ARGUMENT ...]
# --torch: the tests of temper.torch instead, for which pip fetches gigabytes.
# --python: an interpreter that has the packages of the requirements' file; pip fetches nothing then.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
requirements=$here/requirements.txt environment=python-tests tests=$here python= needed="numpy onnx pytest"
fail() { echo "$1" >&2; exit "${2:-1}"; }
skip() { fail "skipped: $1" 77; }

while [[ ${1:-} = --* ]]; do
  case $1 in
    --torch)
      requirements=$here/requirements-torch.txt environment=python-torch-tests tests=$here/test_torch.py
      needed+=" torch"
      shift ;;
    --python)
      python=${2:-}
      shift $(($# > 1 ? 2 : 1)) ;;
    *) fail "there is no option $1" ;;
  esac
done
[ -d "${1:-}" ] || fail "usage: $0 [--torch] [--python PYTHON] BUILD_FOLDER [PYTEST_ARGUMENT ...]"
build=$(cd "$1" && pwd)
shift
[ -x "$build/bin/temper" ] || fail "there is no $build/bin/temper: build it first"

if [ -n "$python" ]; then
  "$python" -c "import ${needed// /, }" 2>/dev/null || fail "$python lacks one of: $needed (pip install -r $requirements)"
else
  venv=$build/$environment
  ready=$venv/$(sha256sum <"$requirements" | cut -c1-16)
  python=$venv/bin/python
  if [ ! -e "$ready" ]; then
    rm -rf "$venv"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || skip "there is no Python of 3.11 or later"
    python3 -m venv "$venv" >/dev/null || skip "python3 makes no virtual environment: deploy/setup.sh test installs what it needs"
    "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 -r "$requirements" >"$venv/pip.log" 2>&1 ||
      skip "the packages of $requirements can not be fetched from PyPI, see $venv/pip.log"
    touch "$ready"
  fi
fi
export TEMPER_BIN=$build/bin PYTHONPATH=$here/.. PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest -q -p no:cacheprovider "${@:-$tests}"
