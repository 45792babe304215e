#!/bin/sh
# Records the spaces that bench/README.md's table of searches is about, one file a task, on the CPUs of the affinity
# mask; what is already recorded is passed over.
#   bench/search/record.sh DIR [BUILD_DIR]
set -e
dir=$1 build=${2:-build}
mkdir -p "$dir"
while read -r name workload; do
  "$build/bin/bench_search" record "$dir/$name.jsonl" "$workload"
done < "$(dirname "$0")/tasks.txt"
