# Sourced by demo.sh and test.sh: installs what is missing of the packages that walsh needs.
# shellcheck shell=bash

# Debian 12 and Ubuntu 24.04 use the same names, except for Boost: Debian 12's default is too old.
# shellcheck disable=SC2034
WALSH_BUILD_PACKAGES=(
  build-essential cmake ninja-build pkg-config
  libfmt-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev libxxhash-dev
  libedit-dev libjpeg-dev libpng-dev libwebp-dev
)
if grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then
  WALSH_BUILD_PACKAGES+=(libboost1.81-dev)
else
  WALSH_BUILD_PACKAGES+=(libboost-dev)
fi
# shellcheck disable=SC2034
WALSH_TEST_PACKAGES=(libgtest-dev libgmock-dev python3 python3-dev python3-venv)

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo "$@"
  else
    echo "error: packages are missing and there is no sudo; as root, run: $*" >&2
    return 1
  fi
}

# install_packages PACKAGE...
install_packages() {
  local missing=() package
  for package in "$@"; do
    if ! dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed'; then
      missing+=("$package")
    fi
  done
  if [ "${#missing[@]}" -eq 0 ]; then
    return 0
  fi
  if ! command -v apt-get > /dev/null; then
    echo "error: install the counterparts of these Debian packages: ${missing[*]}" >&2
    return 1
  fi
  echo "Installing: ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    "${missing[@]}"
}
