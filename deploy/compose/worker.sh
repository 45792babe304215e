#!/bin/sh
# usage: worker.sh KEY OPTION ...      A worker for the key; at its first start it joins by $TEMPER_INVITATIONS/KEY.
set -eu
key=$1
shift
home=${TEMPER_HOME:-/var/lib/temper}
[ -d "$home/workers/$key" ] ||
  temper-worker join --server "$TEMPER_SERVER" --token-file "$TEMPER_INVITATIONS/$key" --state-dir "$home"
exec temper-worker --server "$TEMPER_SERVER" --key "$key" --state-dir "$home" "$@"
