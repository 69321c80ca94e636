#!/usr/bin/env bash
# Builds the servers that the tests run against, at the versions pinned in
# kubernetes/go.mod, kueue/go.mod, kwok/go.mod and s3/go.mod:
#
#   versitygw                  an S3 server
#   etcd                       the API server's store
#   kube-apiserver             the Kubernetes API, to try the CRD on
#   kube-controller-manager    makes a Job's pods, among much else
#   kube-scheduler             finds a node for a pod
#   kubelet                    runs a node's pods, with containerd and runc from Debian
#   kubectl                    for people, and for what is meant to be typed
#   kueue                      lets Jobs in when a queue has room; its definitions in kueue-config
#   kwok                       thousands of nodes and pods without containers
#
#   tests/tools/build.sh [NAME...]     builds what is missing; all of them by default
#
# They go to $SIDECARJOB_TOOLS, or to ~/.cache/sidecarjob/tools/bin. There, NAME
# is a link to a file that carries the hash of its pins in its name, so a changed
# pin is built anew, a second run does nothing, and an interrupted one leaves
# nothing half done. A regular file called NAME was put there by somebody: it is
# used as it is.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sidecarjob
bin=${SIDECARJOB_TOOLS:-$cache/tools/bin}

# name, folder of its go.mod, package, what else is taken from the package's module
tools='
versitygw                s3          github.com/versity/versitygw/cmd/versitygw
etcd                     kubernetes  go.etcd.io/etcd/server/v3
kube-apiserver           kubernetes  k8s.io/kubernetes/cmd/kube-apiserver
kube-controller-manager  kubernetes  k8s.io/kubernetes/cmd/kube-controller-manager
kube-scheduler           kubernetes  k8s.io/kubernetes/cmd/kube-scheduler
kubelet                  kubernetes  k8s.io/kubernetes/cmd/kubelet
kubectl                  kubernetes  k8s.io/kubernetes/cmd/kubectl
kueue                    kueue       sigs.k8s.io/kueue/cmd/kueue  config/components
kwok                     kwok        sigs.k8s.io/kwok/cmd/kwok
'

flags_of() { # PACKAGE
  local version
  echo "-s -w"
  if [[ $1 = k8s.io/kubernetes/* ]]; then
    # The version that a component reports is set by the linker.
    version=$(awk '$1 == "require" && $2 == "k8s.io/kubernetes" {print $3}' "$here/kubernetes/go.mod")
    echo "-X k8s.io/component-base/version.gitVersion=$version"
    echo "-X k8s.io/component-base/version.gitMajor=$(cut -d. -f1 <<<"${version#v}")"
    echo "-X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")"
  fi
}

hash_of() {
  (
    cd "$here/$1"
    cat go.mod go.sum
  ) | sha256sum | cut -c1-12
}

ready() { # NAME HASH
  [ -x "$bin/$1" ] && { [ ! -L "$bin/$1" ] || [ "$(readlink "$bin/$1")" = ".$1-$2" ]; }
}

link() { # FILE NAME
  ln -sfn "$1" "$bin/.$2.link"
  mv -T "$bin/.$2.link" "$bin/$2"
}

# A folder of the package's module, as NAME-config.
take_along() { # NAME HASH MODULE PACKAGE FOLDER
  local source target=.$1-config-$2
  source=$(cd "$here/$3" && GOFLAGS=-mod=readonly go list -f '{{.Module.Dir}}' "$4") || return
  rm -rf "$bin/$target" "$bin/$target.part"
  cp -r "$source/$5" "$bin/$target.part"
  # As the module cache has them, nobody may write or remove them.
  chmod -R u+w "$bin/$target.part"
  mv "$bin/$target.part" "$bin/$target"
  link "$target" "$1-config"
  find "$bin" -maxdepth 1 -name ".$1-config-*" ! -name "$target" -exec rm -rf {} +
}

build() { # NAME MODULE PACKAGE [FOLDER]
  local name=$1 module=$2 package=$3 folder=$4 hash flags start=$SECONDS
  hash=$(hash_of "$module")
  if ready "$name" "$hash"; then
    return
  fi
  if ! command -v go >/dev/null; then
    echo "tools: $name is missing and building it needs Go ($(sed -n 's/^go //p' "$here/$module/go.mod") or newer)." >&2
    echo "tools: install Go, or put $name into $bin yourself." >&2
    return 1
  fi
  echo "tools: building $name (once; cached in $bin)" >&2
  flags=$(flags_of "$package" | tr '\n' ' ')
  (
    cd "$here/$module"
    CGO_ENABLED=0 GOFLAGS=-mod=readonly nice go build -trimpath -buildvcs=false -ldflags "$flags" \
      -o "$bin/.$name-$hash.part" "$package"
  ) || return
  if [ -n "$folder" ]; then
    take_along "$name" "$hash" "$module" "$package" "$folder" || return
  fi
  mv "$bin/.$name-$hash.part" "$bin/.$name-$hash"
  link ".$name-$hash" "$name"
  # Older builds of the same tool.
  find "$bin" -maxdepth 1 -type f -name ".$name-*" ! -name ".$name-$hash" -delete
  echo "tools: $name took $((SECONDS - start)) s" >&2
}

mkdir -p "$bin"
exec 9>"$bin/.lock"
if ! flock -n 9; then
  echo "tools: another build is running, waiting for it" >&2
  flock 9
fi

missing=0
while read -r name module package folder; do
  [ -n "$name" ] || continue
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
    continue
  fi
  build "$name" "$module" "$package" "$folder" || missing=$((missing + 1))
done <<<"$tools"
[ "$missing" -eq 0 ] || exit 1
