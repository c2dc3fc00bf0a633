#!/usr/bin/env bash
# Makes the files of a release from a clean clone of the commit that is checked out, tries each of
# them in a fresh root file system, and writes a list of their parts and their checksums.
# Usage: tools/release.sh [FOLDER]       (build/release-files); as root, on Debian 12
#
# WALSH_RELEASE_CUDA=ON      GPU code in the programs, too (needs the CUDA toolkit)
# WALSH_RELEASE_WHEELS=OFF   without wheels, which need packages of PyPI
# WALSH_RELEASE_PYTHONS      the interpreters that wheels are made for and tried with (python3),
#                            such as "python3.10 python3.11 python3.12"
# WALSH_RELEASE_IMAGES=ON    container images as well, where docker has a daemon
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
files=$(mkdir -p "${1:-$root/build/release-files}" && cd "${1:-$root/build/release-files}" && pwd)
cuda=${WALSH_RELEASE_CUDA:-OFF}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "release: $*" >&2; exit 1; }
[ -z "$(git -C "$root" status --porcelain)" ] || fail "there are changes that are not committed"

# Programs linked with an older C library run on newer systems too.
grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release ||
  echo "release: note: made on Debian 12, the files run on more systems" >&2
git clone --quiet --no-hardlinks "$root" "$work/source"
cd "$work/source"
# shellcheck source=tools/install_packages.sh
source tools/install_packages.sh
install_packages "${WALSH_BUILD_PACKAGES[@]}" dpkg-dev file libncurses-dev libbsd-dev libmd-dev
version=$(sed -n 's/^project(walsh VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

cmake --preset release -DWALSH_TESTS=OFF -DWALSH_CUDA="$cuda" -DWALSH_STATIC_LIBRARIES=ON \
  -DWALSH_SHARED=OFF
cmake --build --preset release --parallel "$(nproc)" --target walsh_command
cpack -G DEB --config build/release/CPackConfig.cmake -B "$work/deb"
cp "$work"/deb/*.deb "$files/"
name=walsh-$version-linux-x86_64
# The program alone: the library is built against a system's own packages.
cmake --install build/release --prefix "$work/$name" --component program --strip
cp README.md CHANGELOG.md LICENSE "$work/$name/"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
  -czf "$files/$name.tar.gz" "$name"

if [ "${WALSH_RELEASE_WHEELS:-ON}" = ON ]; then
  install_packages python3-venv python3-dev
  read -ra pythons <<<"${WALSH_RELEASE_PYTHONS:-python3}"
  WALSH_CUDA=$cuda tools/build_wheel.sh "$files" "${pythons[@]}"
  python3 -m venv "$work/python"
  "$work/python/bin/python" -m pip install --quiet build
  "$work/python/bin/python" -m build --sdist --outdir "$files" .
fi
if [ "${WALSH_RELEASE_IMAGES:-OFF}" = ON ]; then
  docker info >/dev/null || fail "docker has no daemon"
  commit=$(git rev-parse --short=12 HEAD)
  docker build --target cpu --build-arg COMMIT="$commit" -t "walsh:$version-cpu" .
  [ "$cuda" = OFF ] ||
    docker build --target cuda --build-arg COMMIT="$commit" -t "walsh:$version-cuda" .
fi

tools/try_release.sh "$files" bookworm trixie noble
boost=libboost-dev
dpkg-query -W libboost1.81-dev >/dev/null 2>&1 && boost=libboost1.81-dev
python3 tools/sbom.py "$version" "$files" libfmt-dev libpcre2-dev libutf8proc-dev libxxhash-dev \
  libedit-dev libncurses-dev libbsd-dev libmd-dev libjpeg-dev libpng-dev libwebp-dev zlib1g-dev \
  nlohmann-json3-dev libcli11-dev "$boost"
cd "$files"
sha256sum -- *.deb *.tar.gz *.json $(compgen -G '*.whl' || true) >SHA256SUMS
cat SHA256SUMS
