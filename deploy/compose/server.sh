#!/bin/sh
# The server of an image: at its first start it makes what its fleet will know it by.
# TEMPER_NAMES: what clients and workers call this server beside localhost, separated by blanks.
set -eu
home=${TEMPER_HOME:-/var/lib/temper}
if [ ! -d "$home/server" ]; then
  names=
  for name in ${TEMPER_NAMES:-}; do names="$names --name $name"; done
  # shellcheck disable=SC2086
  temper-server init "$home/server" $names
fi
exec temper-server --dir "$home/server" --db "$home/records.db" --listen "${TEMPER_LISTEN:-0.0.0.0:9190}" "$@"
