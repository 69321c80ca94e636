#!/usr/bin/env bash
# cargo-deny with the rules of deny.toml. It is built once, into the cache, which
# takes minutes; `make lint` has tests/tools/licences.py for every day.
#
# The advisory database comes from the network. Where it cannot be had, everything
# else is still checked, and the output says that advisories were not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

version=0.20.2
root=${XDG_CACHE_HOME:-$HOME/.cache}/sidecarjob/cargo-deny-$version

if [ ! -x "$root/bin/cargo-deny" ]; then
  start=$SECONDS
  echo "deny: building cargo-deny $version (once; cached in $root)" >&2
  CARGO_TARGET_DIR=$root/build nice cargo install --quiet --locked --root "$root" --version "=$version" cargo-deny
  rm -rf "$root/build"
  echo "deny: took $((SECONDS - start)) s" >&2
fi

"$root/bin/cargo-deny" --locked check bans licenses sources
if "$root/bin/cargo-deny" --locked fetch db 2>"$root/fetch.log"; then
  "$root/bin/cargo-deny" --locked check advisories
else
  echo "deny: advisories were NOT checked, their database cannot be fetched from here:" >&2
  tail -n 3 "$root/fetch.log" >&2
fi
