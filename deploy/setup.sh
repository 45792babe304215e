#!/usr/bin/env bash
# Installs what is missing of deploy/packages.txt, after saying so; for test and bench, fetches NVRTC into $BUILD/nvrtc.
# usage: deploy/setup.sh [--check] NEED ...      NEED: build, test, demo, bench, run or opencl (the second column of the list)
# --check installs and fetches nothing: on a Debian 12 that lacks some packages it says so in one line and fails.
set -euo pipefail
list=$(dirname "$0")/packages.txt
[ $# -gt 0 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
check=no
if [ "$1" = --check ]; then check=yes; shift; fi

wanted=$(awk -v needs=" $* " '!/^#/ && NF == 2 {
  count = split($2, who, ",")
  for (i = 1; i <= count; ++i) if (index(needs, " " who[i] " ")) { print $1; next }
}' "$list")
missing=()
for package in $wanted; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
done

# NVIDIA's compiler of CUDA C++, in pip's form. Without it, tests of it are skipped.
fetch_nvrtc() {
  local folder=${BUILD:-build}/nvrtc pins
  pins=$(dirname "$list")/nvrtc.txt
  cmp -s "$pins" "$folder/nvrtc.txt" && return 0
  echo "temper: fetching NVRTC from PyPI into $folder (150 MiB to fetch)"
  rm -rf "$folder"
  mkdir -p "$folder"
  if { python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q --no-deps --target "$folder" -r "$pins"; } >"$folder.log" 2>&1; then
    cp "$pins" "$folder/nvrtc.txt"
  else
    echo "temper: NVRTC can not be had ($(tail -n 1 "$folder.log" 2>/dev/null)); CUDA code is not compiled in tests"
    rm -rf "$folder"
  fi
  rm -f "$folder.log"
}
finish() {
  case "$check $needs " in "no "*" test "* | "no "*" bench "*) fetch_nvrtc ;; esac
  exit 0
}
needs=" $*"
[ ${#missing[@]} -gt 0 ] || finish

. /etc/os-release 2>/dev/null || true
if [ $check = yes ]; then
  [ "${ID:-}" = debian ] && [ "${VERSION_ID:-}" = 12 ] || exit 0  # the packages have other names there
  echo "temper: ${#missing[@]} Debian packages are missing; deploy/setup.sh $* installs them: ${missing[*]}"
  exit 1
fi
if [ "${ID:-}" != debian ] || [ "${VERSION_ID:-}" != 12 ]; then
  echo "temper: this is not Debian 12, so nothing is installed for you. Needed, by Debian's names (see deploy/packages.txt):" >&2
  printf '  %s\n' "${missing[@]}" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "temper: not root and no sudo; install these first: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "temper: installing ${#missing[@]} missing Debian packages with what they need (on a bare system about 400 MiB to fetch, 2 GiB on disk, 2 to 5 minutes):"
echo "  ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
finish
