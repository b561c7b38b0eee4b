#!/usr/bin/env bash
# Gets the three repositories that the questions are about.
#
#   bench/questions/fetch.sh FOLDER
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: bench/questions/fetch.sh FOLDER" >&2; exit 2; }
mkdir -p "$1"
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip download --quiet --no-deps --no-binary :all: --dest "$work" requests==2.32.3
tar -xzf "$work/requests-2.32.3.tar.gz" -C "$work"
(cd "$work" && npm pack --silent commander@12.1.0 >/dev/null && tar -xzf commander-12.1.0.tgz)
mkdir "$work/empty" "$work/empty/src"
printf '[package]\nname = "empty"\nversion = "0.0.0"\n[dependencies]\nignore = "=0.4.34"\n' >"$work/empty/Cargo.toml"
touch "$work/empty/src/lib.rs"
(cd "$work/empty" && cargo vendor --quiet vendor >/dev/null)
rm -rf requests commander ignore
mv "$work/requests-2.32.3" requests
mv "$work/package" commander
mv "$work/empty/vendor/ignore" ignore
