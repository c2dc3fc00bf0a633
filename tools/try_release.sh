#!/usr/bin/env bash
# Tries the files of a release in fresh root file systems: try_release.sh FOLDER [SUITE...]
#
# SUITE is a release of Debian or Ubuntu (bookworm); its packages come from where this system has
# its own, or for Ubuntu from WALSH_UBUNTU_MIRROR. As root; installs debootstrap if it is missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
files=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bookworm
# shellcheck source=tools/install_packages.sh
source "$root/tools/install_packages.sh"
install_packages debootstrap
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "try_release: $*" >&2; exit 1; }

own_mirror() {  # of the files of apt's two kinds, not all need be there
  local sources places
  sources=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true)
  places=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' \
    <<<"$sources")
  grep -m 1 'debian/\?$' <<<"$places"
}

check_program() {  # check_program ROOT PROGRAM: as its user would, from a model to a text
  local inside="$2 quantize /models/walsh-tiny-13m /tmp/tiny.gguf --type tq4 &&
    $2 run /tmp/tiny.gguf -p 'The river' -n 8 --temp 0 --raw && $2 --version --verbose"
  chroot "$1" /bin/sh -c "$inside" >"$work/said" 2>&1 || fail "$2: $(cat "$work/said")"
  grep -q 'The river' "$work/said" || fail "$2 wrote: $(cat "$work/said")"
}

for suite in "$@"; do
  case $suite in
    noble | jammy) mirror=${WALSH_UBUNTU_MIRROR:-}
      [ -n "$mirror" ] || { echo "$suite: not tried: WALSH_UBUNTU_MIRROR is not set"; continue; } ;;
    *) mirror=$(own_mirror) || fail "this system has no source of Debian packages" ;;
  esac
  fresh=$work/$suite
  debootstrap --variant=minbase "$suite" "$fresh" "$mirror" >"$work/log" 2>&1 ||
    fail "$suite: $(tail -5 "$work/log")"
  cp -r "$root/models" "$fresh/models"
  mkdir "$fresh/files"
  cp "$files"/* "$fresh/files/"

  tar -C "$fresh/opt" -xzf "$files"/walsh-*.tar.gz
  tarball=$(cd "$fresh" && echo opt/walsh-*/bin/walsh)
  check_program "$fresh" "/$tarball"
  echo "$suite: the tarball works"

  # Without network access, because the package's dependencies are installed already.
  chroot "$fresh" /bin/sh -c 'dpkg -i /files/walsh_*.deb' >"$work/log" 2>&1 ||
    fail "$suite: $(cat "$work/log")"
  check_program "$fresh" walsh
  test -f "$fresh/usr/share/man/man1/walsh.1.gz" || test -f "$fresh/usr/share/man/man1/walsh.1" ||
    [ "$(ls "$fresh/usr/share/man" | wc -l)" = 0 ] || fail "$suite: no manual page"
  chroot "$fresh" dpkg -r walsh >/dev/null
  ! test -e "$fresh/usr/bin/walsh" || fail "$suite: the program is still there"
  echo "$suite: the Debian package works"
done

# A wheel is tried in its own virtual environment.
if compgen -G "$files/*.whl" >/dev/null; then
  for wheel in "$files"/*.whl; do
    python3 -m venv --clear "$work/venv"
    if ! "$work/venv/bin/python" -m pip install --quiet "$wheel" 2>"$work/log"; then
      grep -q 'not a supported wheel' "$work/log" || fail "$(cat "$work/log")"
      echo "$(basename "$wheel"): not tried: it is for another Python"
      continue
    fi
    (cd "$work" && "$work/venv/bin/python" -c "
import walsh
walsh.quantize('$root/models/walsh-tiny-13m', 'tiny.gguf', type='tq4')
with walsh.Model('tiny.gguf') as model:
    assert ''.join(model.stream('The river', max_tokens=4))
") || fail "$wheel"
    echo "$(basename "$wheel"): it works"
  done
fi
