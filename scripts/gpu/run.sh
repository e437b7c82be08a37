#!/usr/bin/env bash
# Builds and runs the GPU programs: results against the oracle, then times, then the Python package with torch's tensors.
# Everything they say also goes to OUT (default build-gpu): ll_gpu.log, ll_gpu.json, python_gpu.log. Arguments are handed
# on to ll_gpu.
set -euo pipefail
cd "$(dirname "$0")/../.."
OUT=${OUT:-build-gpu}

scripts/gpu/build.sh
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv
# A limit for the whole run: should a wait outlast its deadline, the last line of the log names the case.
CUDA_DEVICE_MAX_CONNECTIONS=32 timeout "${LIMIT_S:-480}" build-gpu/ll_gpu --json "$OUT/ll_gpu.json" "$@" |
  tee "$OUT/ll_gpu.log" | grep -v ': ok$'
if [[ -e build-gpu/python/switchyard/_core.so ]]; then
  PYTHONPATH=build-gpu/python CUDA_DEVICE_MAX_CONNECTIONS=32 timeout 240 "${PYTHON:-python3}" tests/gpu/python_gpu.py 2>&1 |
    tee "$OUT/python_gpu.log"
fi
