#!/usr/bin/env bash
# A guided tour on this machine: `make demo`. BUILD_DIR: where the project was built. Arguments go to the benchmark.
# Ends with an error if anything fails or a single value is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD_DIR:-build}
ranks=${DEMO_RANKS:-8}
for program in switchyard moe_decode user_all_to_all; do
  if [[ ! -x $build/bin/$program ]]; then
    echo "demo: $build/bin/$program is missing; run make build first, or set BUILD_DIR" >&2
    exit 1
  fi
done

heading() { printf '\n== %s ==\n\n' "$1"; }
show() {
  echo "\$ $*"
  "$@"
}

heading "A C program written for the expert-parallel API, on $ranks ranks without a GPU"
show "$build/bin/switchyard" run -n "$ranks" -- "$build/bin/moe_decode"

heading "A kernel of one's own on the device API: all-to-all between 4 ranks"
show "$build/bin/switchyard" run -n 4 -- "$build/bin/user_all_to_all"

heading "The decode step of a large layer, verified and measured"
cat <<'TEXT'
Every rank dispatches its tokens to the ranks of their experts and gets the weighted sum of the experts' rows back.
Results are compared with plain code. Beside our times stand the bound, which is what this machine's memory needs for
the same rows, and the baseline, permute + MPI_Alltoallv, both measured in this run.

TEXT
show "$build/bin/switchyard" bench ep --mode ll --layout em --ranks "$ranks" --zero-copy --verify --baselines "$@"

printf '\nAll steps succeeded.\n'
