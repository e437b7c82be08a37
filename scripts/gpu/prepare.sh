#!/usr/bin/env bash
# Copies what the GPU programs need of this machine's packages (libsodium, Highway, xxHash, and headers) into build-gpu-deps/, for a machine
# that has a GPU, nvcc and g++ but none of the packages: run it here, take the folder along, run scripts/gpu/run.sh there.
set -euo pipefail
cd "$(dirname "$0")/../.."

deps=build-gpu-deps
libraries=$(pkg-config --variable=libdir libsodium)
includes=$(pkg-config --variable=includedir libsodium)

rm -rf "$deps"
mkdir -p "$deps/include" "$deps/lib"
cp -r "$includes/sodium.h" "$includes/sodium" "$includes/xxhash.h" "$includes/hwy" "$includes/CLI" "$includes/fmt" \
  "$includes/nlohmann" "$deps/include/"
cp "$libraries/libsodium.a" "$deps/lib/"
cp -L "$libraries/libhwy.so.1" "$deps/lib/"
du -sh "$deps"
