#!/usr/bin/env bash
# Makes the Python environment that the interoperability tests and the benchmark
# use: other programs that read and write Parquet, pinned in python/requirements.txt.
# Nothing of the product itself needs Python.
#
# It goes to $SIDECARJOB_VENV, or to ~/.cache/sidecarjob/venv, a link to a folder
# that carries the hash of its pins in its name. A real folder there was made by
# somebody: it is used as it is.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${SIDECARJOB_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/sidecarjob/venv}
pins=$here/python/requirements.txt

if [ -x "$venv/bin/python" ] && [ ! -L "$venv" ]; then
  exit 0
fi
if ! command -v python3 >/dev/null || ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "venv: installing python3-venv" >&2
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >&2
  else
    echo "venv: python3 with its venv module is missing (Debian and Ubuntu: apt install python3-venv)" >&2
    exit 1
  fi
fi

hash=$({ cat "$pins"; python3 --version; } | sha256sum | cut -c1-12)
parent=$(dirname "$venv")
name=$(basename "$venv")
mkdir -p "$parent"
exec 9>"$parent/.$name.lock"
flock 9

if [ "$(readlink "$venv" || true)" = "$name-$hash" ] && [ -x "$venv/bin/python" ]; then
  exit 0
fi
start=$SECONDS
echo "venv: installing the pinned packages (once; cached in $venv)" >&2
rm -rf "$parent/$name-$hash"
python3 -m venv "$parent/$name-$hash"
"$parent/$name-$hash/bin/pip" install --quiet --disable-pip-version-check --no-input -r "$pins" >&2
ln -sfn "$name-$hash" "$parent/.$name.link"
mv -T "$parent/.$name.link" "$venv"
# Environments of older pins.
find "$parent" -maxdepth 1 -type d -name "$name-*" ! -name "$name-$hash" -exec rm -rf {} +
echo "venv: took $((SECONDS - start)) s" >&2
