#!/usr/bin/env bash
# Tries the files of a release in fresh root file systems: try_release.sh FOLDER [SUITE...]
# FOLDER may have some of them only, such as the wheels.
#
# SUITE is a release of Debian or Ubuntu (bookworm); its packages come from where this system has
# its own, or for Ubuntu from WALSH_UBUNTU_MIRROR. As root; installs debootstrap if it is missing.
# Wheels are tried with the Python of every SUITE, whose numpy this system's pip fetches, and in
# virtual environments of the interpreters in WALSH_RELEASE_PYTHONS (python3).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
files=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bookworm
# shellcheck source=tools/install_packages.sh
source "$root/tools/install_packages.sh"
install_packages debootstrap
work=$(mktemp -d)
clean() {
  umount "$work"/*/proc 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean EXIT
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

check_tarball() {  # check_tarball ROOT SUITE
  tar -C "$1/opt" -xzf "$tarballs"
  check_program "$1" "/$(cd "$1" && echo opt/walsh-*/bin/walsh)"
  echo "$2: the tarball works"
}

check_deb() {  # check_deb ROOT SUITE
  # This has no network access, because the package's dependencies are installed already.
  chroot "$1" /bin/sh -c 'dpkg -i /files/walsh_*.deb' >"$work/log" 2>&1 ||
    fail "$2: $(cat "$work/log")"
  check_program "$1" walsh
  test -f "$1/usr/share/man/man1/walsh.1.gz" || test -f "$1/usr/share/man/man1/walsh.1" ||
    [ "$(ls "$1/usr/share/man" | wc -l)" = 0 ] || fail "$2: no manual page"
  chroot "$1" dpkg -r walsh >/dev/null
  ! test -e "$1/usr/bin/walsh" || fail "$2: the program is still there"
  echo "$2: the Debian package works"
}

check_package() {  # check_package "RUN..." ENVIRONMENT MODEL: as a reader of the README would
  local run=$1 inside=$2/bin model=$3
  (cd "$work" && $run "$inside/python" -c "
import os, tempfile, walsh
os.chdir(tempfile.mkdtemp())
report = walsh.quantize('$model', 'tiny.gguf', type='tq4')
assert 4 < report.bits_per_weight < 5, report
with walsh.Model('tiny.gguf') as model:
    assert model.generate('The river', max_tokens=4, temperature=0).text
" && $run "$inside/walsh" --version) >"$work/said" 2>&1 || fail "wheel: $(cat "$work/said")"
}

check_wheel() {  # check_wheel ROOT SUITE: without network access, in the system's own Python
  local version
  version=$(chroot "$1" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  python3 -m venv --clear "$work/venv"
  "$work/venv/bin/python" -m pip download --quiet --only-binary=:all: --python-version "$version" \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
    --platform manylinux2014_x86_64 --dest "$1/files" numpy
  chroot "$1" python3 -m venv /venv
  if ! chroot "$1" /venv/bin/python -m pip install --quiet --no-index --find-links /files \
    --only-binary=:all: walsh >"$work/log" 2>&1; then
    grep -q 'No matching distribution' "$work/log" || fail "$2: $(cat "$work/log")"
    echo "$2: there is no wheel for its Python $version"
    return
  fi
  check_package "chroot $1" /venv /models/walsh-tiny-13m
  echo "$2: the wheel works with Python $version"
}

tarballs=$(compgen -G "$files/walsh-*-linux-*.tar.gz" || true)
packages=$(compgen -G "$files/walsh_*.deb" || true)
wheels=$(compgen -G "$files/*.whl" || true)
[ -n "$tarballs$packages$wheels" ] || fail "$files has no file of a release"
for suite in "$@"; do
  case $suite in
    noble | jammy) mirror=${WALSH_UBUNTU_MIRROR:-}
      [ -n "$mirror" ] || { echo "$suite: not tried: WALSH_UBUNTU_MIRROR is not set"; continue; } ;;
    *) mirror=$(own_mirror) || fail "this system has no source of Debian packages" ;;
  esac
  fresh=$work/$suite
  debootstrap --variant=minbase ${wheels:+--include=python3-venv} \
    "$suite" "$fresh" "$mirror" >"$work/log" 2>&1 ||
    fail "$suite: $(tail -5 "$work/log")"
  # A program finds the libraries beside it by /proc/self/exe, as on any running system.
  mount -t proc proc "$fresh/proc"
  cp -r "$root/models" "$fresh/models"
  mkdir "$fresh/files"
  cp "$files"/* "$fresh/files/"

  [ -z "$tarballs" ] || check_tarball "$fresh" "$suite"
  [ -z "$packages" ] || check_deb "$fresh" "$suite"
  [ -z "$wheels" ] || check_wheel "$fresh" "$suite"
  umount "$fresh/proc"
done

# Every interpreter gets a fresh environment and the wheel that pip chooses for it.
read -ra pythons <<<"${WALSH_RELEASE_PYTHONS:-python3}"
for python in ${wheels:+"${pythons[@]}"}; do
  "$python" -m venv --clear "$work/venv"
  version=$("$work/venv/bin/python" --version)
  if ! "$work/venv/bin/python" -m pip install --quiet --find-links "$files" --only-binary=:all: \
    --no-index --no-deps walsh 2>"$work/log"; then
    grep -q 'No matching distribution' "$work/log" || fail "$(cat "$work/log")"
    echo "$version: there is no wheel for it"
    continue
  fi
  "$work/venv/bin/python" -m pip install --quiet numpy
  check_package "" "$work/venv" "$root/models/walsh-tiny-13m"
  echo "$version: the wheel works"
done
