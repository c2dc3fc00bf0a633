#!/usr/bin/env bash
# Requests made up from the document at /openapi.json, by schemathesis (pip install
# schemathesis==4.32.5): no answer may be a server error, and every answer has to be one that the
# document describes. The same requests every time.
# Usage: check_openapi.sh WALSH MODEL [EXAMPLES]      examples per endpoint, 50 by default
set -euo pipefail
walsh="$(realpath "$1")" model="$(realpath "$2")" examples="${3:-50}"
schemathesis="${SCHEMATHESIS:-$(command -v schemathesis || true)}"
if [ -z "$schemathesis" ]; then
  echo "skipped: needs the Python package schemathesis"
  exit 77
fi
schemathesis="$(realpath "$schemathesis")"
folder="$(mktemp -d)" # for what schemathesis writes where it is started
log="$folder/log"
: > "$log"
cd "$folder"
"$walsh" serve "$model" --device cpu --port 0 --ctx 256 2> "$log" &
server=$!
trap 'kill "$server"; wait "$server" || true; cd /; rm -rf "$folder"' EXIT
for _ in $(seq 600); do
  grep -q http:// "$log" && break
  sleep 0.1
done
url="$(sed -n 's/.*\(http:[/][/]127[.]0[.]0[.]1:[0-9]*\).*/\1/p' "$log" | head -n 1)"
checks=not_a_server_error,status_code_conformance,content_type_conformance
checks+=,response_schema_conformance
"$schemathesis" run "$url/openapi.json" --url "$url" --max-examples "$examples" --seed 1 \
  --checks "$checks" --phases examples,coverage,fuzzing \
  --generation-database none --request-timeout 120 --suppress-health-check too_slow
