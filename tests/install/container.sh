#!/usr/bin/env bash
# Checks what can be known of the Dockerfile without a daemon to build it: its stages and files
# exist, its images do not run as root, and its health check tells a server ($1 is walsh) that
# answers from one that does not.
set -euo pipefail
walsh=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
file=$root/Dockerfile
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
fail() { echo "error: $*"; exit 1; }

sed -n 's/^COPY \([^-. ]\S*\) .*/\1/p' "$file" | sort -u | while read -r path; do
  [ -e "$root/$path" ] || fail "COPY $path: no such file"
done
stages=$(sed -n 's/^FROM .* AS //p' "$file")
sed -n 's/^COPY --from=\(\S*\) .*/\1/p' "$file" | while read -r stage; do
  grep -qx "$stage" <<<"$stages" || fail "COPY --from=$stage: no such stage"
done
for stage in cpu cuda; do
  text=$(sed -n "/^FROM .* AS $stage\$/,/^CMD/p" "$file")
  for line in 'USER walsh' 'EXPOSE 8080' HEALTHCHECK 'ENTRYPOINT \["walsh"\]'; do
    grep -q "^$line" <<<"$text" || fail "stage $stage lacks $line"
  done
done

"$walsh" serve "$root/models/walsh-tiny-13m" --device cpu -t 1 --port 0 2>"$work/log" &
server=$!
for _ in $(seq 600); do
  port=$(sed -n 's|.*http://127\.0\.0\.1:\([0-9]\+\).*|\1|p' "$work/log" | head -1)
  [ -z "$port" ] || break
  kill -0 "$server" 2>/dev/null || fail "the server ended: $(cat "$work/log")"
  sleep 0.1
done
WALSH_ARG_PORT=$port "$root/tools/container_health.sh" || fail "a healthy server is not known"
kill "$server"
wait "$server" || true
server=
if WALSH_ARG_PORT=$port "$root/tools/container_health.sh" 2>/dev/null; then
  fail "no server is healthy"
fi
echo "the container's parts work"
