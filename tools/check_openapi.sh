#!/usr/bin/env bash
# Requests made up from the document at /openapi.json, by schemathesis (pip install schemathesis):
# no answer may be a server error, and every answer has to be one that the document describes.
# Usage: check_openapi.sh WALSH MODEL [EXAMPLES]      examples per endpoint, 50 by default
set -euo pipefail
walsh="$1" model="$2" examples="${3:-50}"
schemathesis="${SCHEMATHESIS:-$(command -v schemathesis || true)}"
if [ -z "$schemathesis" ]; then
  echo "skipped: needs the Python package schemathesis"
  exit 77
fi
log="$(mktemp)"
"$walsh" serve "$model" --device cpu --port 0 --ctx 256 2> "$log" &
server=$!
trap 'kill "$server"; wait "$server" || true; rm -f "$log"' EXIT
for _ in $(seq 600); do
  grep -q http:// "$log" && break
  sleep 0.1
done
url="$(sed -n 's/.*\(http:[/][/]127[.]0[.]0[.]1:[0-9]*\).*/\1/p' "$log" | head -n 1)"
"$schemathesis" run "$url/openapi.json" --url "$url" --max-examples "$examples" --seed 1 \
  --checks not_a_server_error,status_code_conformance,content_type_conformance \
  --checks response_schema_conformance --phases examples,coverage,fuzzing \
  --generation-database none --request-timeout 60
