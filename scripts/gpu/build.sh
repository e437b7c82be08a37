#!/usr/bin/env bash
# Builds build-gpu/ll_gpu with plain compiler calls, from the sources and build-gpu-deps/ (scripts/gpu/prepare.sh).
# With the packages installed, cmake -DSWITCHYARD_CUDA=ON builds the same program.
set -euo pipefail
cd "$(dirname "$0")/../.."

deps=build-gpu-deps
out=build-gpu
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
CXX=${CXX:-g++}
JOBS=${JOBS:-$(nproc)}
cuda=$(dirname "$(dirname "$(readlink -f "$NVCC")")")

if [[ ! -f $deps/lib/libsodium.a ]]; then
  echo "build: $deps is missing; run scripts/gpu/prepare.sh on a machine with the packages first" >&2
  exit 1
fi

common="-std=c++20 -O2 -DNDEBUG -DSWITCHYARD_HAVE_CUDA -Iinclude -Isrc -Itests -isystem $deps/include"
host_flags="$common -isystem $cuda/include -ffp-contract=off -fPIC -pthread"
cuda_flags="$common -arch=sm_90 --fmad=false"

sources=$(ls src/base/*.cc src/platform/host/*.cc src/platform/cuda/*.cu src/comm/*.cc src/ep/*.cc src/ep/*.cu \
  tests/oracle/*.cc tests/ep/ll_harness.cc tests/gpu/*.cc | grep -v '_test\.cc$')

# One command a line: first the longest, so that they don't come last on their own.
commands() {
  for source in $(ls -S $sources); do
    object=$out/${source//\//-}.o
    # An object newer than every source and header is kept.
    if [[ -f $object && -z $(find include src tests scripts/gpu -newer "$object" -type f -print -quit) ]]; then continue; fi
    case $source in
      *.cu) echo "$NVCC $cuda_flags -c $source -o $object" ;;
      *) echo "$CXX $host_flags -c $source -o $object" ;;
    esac
  done
}

mkdir -p $out
commands | xargs -P "$JOBS" -I{} bash -c 'echo "${1##* }"; $1' _ {}
objects=$(for source in $sources; do echo "$out/${source//\//-}.o"; done)
$CXX -o $out/ll_gpu $objects $deps/lib/libsodium.a $deps/lib/libhwy.so.1 "-Wl,-rpath,\$ORIGIN/../$deps/lib" \
  -L"$cuda/lib64" -lcudart_static -ldl -lrt -pthread
echo "built $out/ll_gpu"
