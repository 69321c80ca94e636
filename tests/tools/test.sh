#!/usr/bin/env bash
# Runs every test of the workspace and ends with a summary: totals, and each test
# that was skipped because something it needs is not on this machine.
#
# A test that skips itself prints a line "SKIPPED: what is missing". With
# SIDECARJOB_STRICT=1 a skip is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$target"
log=$target/test.log

code=0
cargo test --workspace --locked --no-fail-fast -- --show-output 2>&1 | tee "$log" || code=$?

skips=$(grep '^SKIPPED: ' "$log" || true)
skipped=$(grep -c . <<<"$skips" || true)
echo
grep '^test result:' "$log" || true
if [ "$skipped" -gt 0 ]; then
  echo
  echo "skipped:"
  sort <<<"$skips" | uniq -c
fi
awk -v skipped="$skipped" '
  /^test result:/ { passed += $4; failed += $6 }
  END { printf "%d passed, %d failed, %d skipped\n", passed - skipped, failed, skipped }
' "$log" | tee "$target/test-summary.txt"
if [ "$code" = 0 ] && [ "$skipped" -gt 0 ] && [ "${SIDECARJOB_STRICT:-0}" = 1 ]; then
  echo "test: SIDECARJOB_STRICT=1 allows no skipped test" >&2
  code=1
fi
exit "$code"
