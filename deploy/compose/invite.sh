#!/bin/sh
# usage: invite.sh KEY ...      An invitation for each key, in $TEMPER_INVITATIONS/KEY; each counts once, for an hour.
# As an admin: TEMPER_SERVER, TEMPER_CA and TEMPER_TOKEN_FILE say which server's.
set -eu
umask 077
for key in "$@"; do
  temper device add "$key" --quiet > "$TEMPER_INVITATIONS/$key.new"
  mv "$TEMPER_INVITATIONS/$key.new" "$TEMPER_INVITATIONS/$key"
done
