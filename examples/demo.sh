#!/usr/bin/env bash
# The demo that `make demo` runs: a dataset of some three hundred shards is enriched
# from examples/quickstart.yaml, and photographs are measured, on this machine, with no server and no cluster.
# Everything it writes is under demo-data/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

built=${CARGO_TARGET_DIR:-target}/demo
worker=$built/shard-worker
manifest=examples/quickstart.yaml

say() { printf '\n\033[1m== %s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }

# Runs a command, shows it, and stops the demo unless it ends with the expected exit code.
expect() { # CODE COMMAND...
  local expected=$1 code=0 start
  shift
  printf '$ %s\n' "${*/#"$built/"/}"
  start=$(date +%s%N)
  "$@" || code=$?
  printf -- '-- exit code %d after %d ms\n' "$code" $((($(date +%s%N) - start) / 1000000))
  if [ "$code" != "$expected" ]; then
    echo "demo: expected exit code $expected" >&2
    exit 1
  fi
}

say "Build (optimised; some minutes the first time)"
# Of the whole workspace, so that other builds of it (make cluster-demo) find every crate as built.
cargo build --profile demo --locked --workspace \
  --bin shard-worker --example demo-dataset --example show-rows

say "A dataset: main shards, an index per source, another team's scores, new captions, photographs"
"$built/examples/demo-dataset" demo-data
"$built/examples/demo-dataset" demo-data damage
rm -rf demo-data/sidecar demo-data/photos_filters
printf '%s\n' "$(find demo-data/main -name '*.parquet' | wc -l) main shards, $(du -sh demo-data | cut -f1) in all"

say "Run. Two main shards are damaged: they fail, are listed, and stop nothing else; nor do broken lines of the new captions"
expect 1 "$worker" run "$manifest"

say "Somebody uploads the two shards again. The next run does these two alone"
"$built/examples/demo-dataset" demo-data repair
expect 0 "$worker" run "$manifest"

say "Verify every shard against main: set, row counts, order by key, schema, content"
expect 0 "$worker" verify "$manifest" --all

say "Audit: what matched, and what did not (source_x has no index, by design)"
expect 0 "$worker" audit "$manifest"

say "Run once more: all is there, nothing is done"
expect 0 "$worker" run "$manifest"

say "Read main and sidecar side by side, as a trainer would (examples/show_rows.rs)"
shard=0_512/6667/shard-000000.parquet
"$built/examples/show-rows" "demo-data/main/$shard" "demo-data/sidecar/$shard" s3_path 5

filters=examples/compute-filters.yaml
say "Measure photographs: nine filters, each image decoded once; broken ones cost their own row ($filters)"
expect 0 "$worker" run "$filters"
expect 0 "$worker" verify "$filters" --all

say "Audit: populated and null rows of each filter, and why rows have no values"
expect 0 "$worker" audit "$filters"

say "Done. The sidecar is in demo-data/sidecar; the manifest that made it is $manifest"
