#!/usr/bin/env bash
# The demo that `make cluster-demo` runs: the dataset of `make demo` in S3, enriched by pods of
# the cluster of `make cluster`, which it starts if it isn't there. It can be run again; the
# cluster stays until `make cluster-down`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

built=${CARGO_TARGET_DIR:-target}/demo
export SIDECARJOB_TOOLS=${SIDECARJOB_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/sidecarjob/tools/bin}
scratch=$(mktemp -d)
watch=
end() {
  if [ -n "$watch" ]; then
    kill "$watch" 2>/dev/null || true
    wait "$watch" 2>/dev/null || true
    watch=
  fi
}
trap 'end; rm -rf "$scratch"' EXIT

say() { printf '\n\033[1m== %s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }
kubectl() { "$SIDECARJOB_TOOLS/kubectl" "$@"; }
show() { # kubectl and its arguments, as a person would type them
  printf '$ kubectl %s\n' "$*"
  kubectl "$@"
}

# Runs kubectl with a live view beside it.
beside_watch() {
  printf '$ kubectl get sidecarjobs -w\n'
  # Not by the function: that would be a shell, and outlived by its child.
  "$SIDECARJOB_TOOLS/kubectl" get sidecarjobs -w &
  watch=$!
  kubectl "$@" >"$scratch/waited"
  # What it has to show of the end.
  sleep 1
  end
}

say "Build (optimised; some minutes the first time)"
cargo build --profile demo --locked --workspace \
  --bin sidecarjob-operator --bin shard-worker --bin cluster \
  --example demo-dataset --example copy-objects --example show-rows
# The cluster takes the latest build of each.
touch "$built/sidecarjob-operator" "$built/shard-worker"

say "A cluster: Kubernetes with one node, and an S3 server beside it"
"$built/cluster" up >"$scratch/directions"
eval "$("$built/cluster" environment)"
show get nodes

say "A dataset in S3: main shards (two of them damaged), an index, scores, new captions"
"$built/examples/demo-dataset" demo-data
"$built/examples/demo-dataset" demo-data damage
for part in main index scores recaptions; do
  "$built/examples/copy-objects" "demo-data/$part/" "s3://datasets/demo/$part/"
done

say "The operator, by the configuration in config/"
show apply --server-side -k config/ | tail -n 3
# The S3 server is none of AWS: the operator has to be allowed to talk to it, and to read the Secret
# with its keys.
show --namespace sidecarjob-system set env deployment/sidecarjob-operator \
  SIDECARJOB_ALLOW_ENDPOINTS=http://gateway:9000
kubectl delete rolebinding sidecarjob-operator-secrets --ignore-not-found
show create rolebinding sidecarjob-operator-secrets --clusterrole=sidecarjob-operator-secrets \
  --serviceaccount=sidecarjob-system:sidecarjob-operator
show --namespace sidecarjob-system rollout restart deployment/sidecarjob-operator
show --namespace sidecarjob-system rollout status deployment/sidecarjob-operator --timeout=120s

say "A SidecarJob"
run=$(date -u +%Y%m%d-%H%M%S)
sidecar=s3://datasets/demo/sidecar-$run/
sed "s/RUN/$run/" examples/cluster-demo.yaml >"$scratch/cluster-demo.yaml"
kubectl delete sidecarjob cluster-demo --ignore-not-found
printf '$ kubectl apply -f examples/cluster-demo.yaml      # its output: %s\n' "$sidecar"
kubectl apply -f "$scratch/cluster-demo.yaml"
beside_watch wait --for=condition=Complete sidecarjob/cluster-demo --timeout=300s

say "Two shards failed, which its failurePolicy accepts: the status says which, and why"
show get sidecarjob cluster-demo -o jsonpath='{range .status.failures[*]}{.path}: {.reason}{"\n"}{end}'

say "Somebody uploads them again and asks for another run, which makes these two alone"
"$built/examples/demo-dataset" demo-data repair
"$built/examples/copy-objects" demo-data/main/ s3://datasets/demo/main/
show annotate sidecarjob cluster-demo "sidecarjob.dev/rerun-requested-at=$run"
beside_watch wait --for='jsonpath={.status.shards.progress}=302/302' sidecarjob/cluster-demo --timeout=300s
kubectl wait --for=condition=Complete sidecarjob/cluster-demo --timeout=300s >/dev/null

say "What happened"
show events --for sidecarjob/cluster-demo

say "Metrics of the operator"
leader=$(kubectl --namespace sidecarjob-system get lease sidecarjob-operator -o jsonpath='{.spec.holderIdentity}')
kubectl get --raw "/api/v1/namespaces/sidecarjob-system/pods/${leader%%_*}:8080/proxy/metrics" >"$scratch/metrics"
grep -E '^sidecarjob_(shards|rows|match_ratio|s3_requests)' "$scratch/metrics"

say "Read main and sidecar side by side, as a trainer would (examples/show_rows.rs)"
shard=0_512/6667/shard-000000.parquet
"$built/examples/copy-objects" "$sidecar" "$scratch/sidecar/" >/dev/null
"$built/examples/show-rows" "demo-data/main/$shard" "$scratch/sidecar/$shard" s3_path 5

say "Done. The sidecar is in $sidecar; the cluster stays"
cat <<END
To look around:  eval "\$($built/cluster environment)"
                 kubectl get sidecarjobs -o wide
To end it all:   make cluster-down
END
