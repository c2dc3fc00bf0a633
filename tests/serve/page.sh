#!/usr/bin/env bash
# Tests the server's page in a real browser, with the model in models/; skipped (77) without one.
# Usage: page.sh WALSH
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
exec "${WALSH_PYTHON:-python3}" "$root/tools/check_page.py" "$1" "$root/models/walsh-tiny-13m"
