#!/bin/bash
# Checks that GET /health of this container's server returns 200. Needs no other program.
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/${WALSH_ARG_PORT:-8080}"
printf 'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r _ status _ <&3
[ "$status" = 200 ]
