#!/usr/bin/env bash
# Makes the Debian package of the build in $1, looks into it, and runs what is in it: the program,
# its manual pages and completions.
set -euo pipefail
build=$1
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "error: $*"; exit 1; }

cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work" -D CPACK_DEBIAN_COMPRESSION_TYPE=none \
  >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
deb=$(echo "$work"/walsh_*.deb)
depends=$(dpkg-deb -f "$deb" Depends)
for library in libc6 libfmt libpcre2-8-0 libxxhash0 libedit2 libjpeg libpng16 libwebp7; do
  [[ $depends == *"$library"* ]] || fail "Depends: $depends lacks $library"
done
dpkg-deb -c "$deb" >"$work/list"
for file in bin/walsh include/walsh/engine.h libwalsh.a pkgconfig/walsh.pc walsh-config.cmake \
  man1/walsh.1 man1/walsh-quantize.1 bash-completion/completions/walsh \
  zsh/vendor-completions/_walsh fish/vendor_completions.d/walsh.fish doc/walsh/copyright; do
  grep -q "/$file\$" "$work/list" || fail "the package lacks $file"
done

dpkg-deb -x "$deb" "$work/root"
walsh=$work/root/usr/bin/walsh
grep -q '^walsh [0-9]' <<<"$("$walsh" --version)" || fail "no version"
for line in commit compiler formats processor CUDA; do
  grep -q "^$line " <<<"$("$walsh" --version --verbose)" || fail "--version --verbose lacks $line"
done

# Every command has a page that a formatter takes without a warning and that has its flags.
pages=$work/root/usr/share/man/man1
for page in "$pages"/*.1; do
  if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null | (! grep .) || fail "$page"
  fi
done
for command in $("$walsh" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]\+\) .*/\1/p'); do
  "$walsh" "$command" --help >"$work/help"
  for flag in $(sed -n 's/^  \(-[-a-zA-Z0-9,]*\).*/\1/p' "$work/help" | tr , '\n'); do
    grep -qF -- "\\fB${flag//-/\\-}\\fR" "$pages/walsh-$command.1" || fail "$command: $flag"
  done
done

# Bash completes commands, flags, values and files. No pipes into grep -q, which ends their writer.
completed() {
  bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _walsh
           printf "%s\n" "${COMPREPLY[@]}"' - \
    "$work/root/usr/share/bash-completion/completions/walsh" walsh "$@"
}
[[ $(completed quan) == quantize ]] || fail "a command"
[[ $(completed quantize --output-f) == --output-format ]] || fail "a flag"
[[ $(completed quantize a b --output-format h) == hf ]] || fail "a value"
grep -qx cuda <<<"$(completed run m --device '')" || fail "a device"
grep -qx 'tq4+4' <<<"$(completed quantize --type tq)" || fail "a type"
touch "$work/some.gguf"
[[ $(completed run "$work/some.") == "$work/some.gguf" ]] || fail "a file"
if command -v zsh >/dev/null; then zsh -n "$work/root/usr/share/zsh/vendor-completions/_walsh"; fi
if command -v fish >/dev/null; then fish -n "$work"/root/usr/share/fish/vendor_completions.d/*; fi
echo "the package works"
