#!/usr/bin/env bash
# A guided tour on this machine: `make demo`. BUILD_DIR: where the project was built. Arguments go to the benchmarks.
# Ends with an error if anything fails or a single value is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD_DIR:-build}
ranks=${DEMO_RANKS:-8}
nodes=${DEMO_NODES:-2}
net=${DEMO_NET:-mem}
for program in switchyard moe_decode moe_serving moe_training user_all_to_all; do
  if [[ ! -x $build/bin/$program ]]; then
    echo "demo: $build/bin/$program is missing; run make build first, or set BUILD_DIR" >&2
    exit 1
  fi
done

num_steps=5
step=0
begin=$SECONDS
heading() {
  step=$((step + 1))
  printf '\n[%d/%d, %d s] %s\n\n' "$step" "$num_steps" "$((SECONDS - begin))" "$1"
}
show() {
  echo "\$ $*"
  "$@"
}

heading "A C program written for the expert-parallel API, on $ranks ranks without a GPU"
show "$build/bin/switchyard" run -n "$ranks" -- "$build/bin/moe_decode"

heading "One layer served by $ranks ranks as $nodes nodes: prompts by high throughput, answers by low latency"
show "$build/bin/switchyard" run -n "$ranks" --nodes "$nodes" --net "$net" -- "$build/bin/moe_serving"

heading "A training step: forward, backward, gradients checked against finite differences"
show "$build/bin/switchyard" run -n 4 --nodes 2 --net "$net" -- "$build/bin/moe_training"

cat <<'TEXT'

Two steps of a large layer follow, verified and measured. Every rank dispatches its tokens to the ranks of their experts and gets the
sum of the experts' rows back; results are compared with plain code. Beside our times stands the bound, which is what this machine's
memory needs for the same rows, measured in turns with them.
TEXT

heading "Decode: low latency, 128 tokens a rank, $ranks ranks as $nodes nodes"
show "$build/bin/switchyard" bench ep --mode ll --layout em --ranks "$ranks" --nodes "$nodes" --net "$net" --iters 15 --verify "$@"

heading "Prefill: high throughput, 512 tokens a rank, $ranks ranks as $nodes nodes"
show "$build/bin/switchyard" bench ep --mode ht --ranks "$ranks" --nodes "$nodes" --net "$net" --tokens 512 --iters 7 --warmup 2 \
  --zero-copy --verify "$@"

printf '\nAll %d steps succeeded in %d s.\n' "$num_steps" "$((SECONDS - begin))"
