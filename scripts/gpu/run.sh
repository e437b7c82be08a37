#!/usr/bin/env bash
# Builds and runs the GPU program: results against the oracle, then times. Everything it says also goes to OUT
# (default build-gpu): ll_gpu.log and ll_gpu.json. Arguments are handed on to ll_gpu.
set -euo pipefail
cd "$(dirname "$0")/../.."
OUT=${OUT:-build-gpu}

scripts/gpu/build.sh
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv
# A limit for the whole run: should a wait outlast its deadline, the last line of the log names the case.
CUDA_DEVICE_MAX_CONNECTIONS=32 timeout "${LIMIT_S:-480}" build-gpu/ll_gpu --json "$OUT/ll_gpu.json" "$@" |
  tee "$OUT/ll_gpu.log" | grep -v ': ok$'
