#!/usr/bin/env bash
# Builds build-gpu/ll_gpu, build-gpu/switchyard and the Python package build-gpu/python with plain compiler calls, from the
# sources and build-gpu-deps/ (scripts/gpu/prepare.sh). With the packages installed, cmake -DSWITCHYARD_CUDA=ON builds the
# same.
set -euo pipefail
cd "$(dirname "$0")/../.."

deps=build-gpu-deps
out=build-gpu
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")

if [[ ! -f $deps/lib/libsodium.a ]]; then
  echo "build: $deps is missing; run scripts/gpu/prepare.sh on a machine with the packages first" >&2
  exit 1
fi

shopt -s nullglob
library=$(printf '%s\n' src/{base,platform/host,platform/cuda,net,comm,coll,ep}/*.{cc,cu} | grep -v '/ofi')  # no libfabric there
checks=$(printf '%s\n' tests/oracle/*.cc tests/ep/{buffer,ll_harness}.cc tests/gpu/*.{cc,cu} | grep -v '_test\.cc$')
binding=$(printf '%s\n' python/csrc/*.cc)
# pybind11 comes with torch; the package is built for whatever python3 has it.
python=${PYTHON:-python3}
python_includes=$("$python" - <<'PYTHON' || true
import importlib.util, os, sysconfig
torch = importlib.util.find_spec("torch")
if torch is not None:
    print("-isystem", os.path.join(os.path.dirname(torch.origin), "include"), "-isystem", sysconfig.get_paths()["include"])
PYTHON
)
tool=$(printf '%s\n' tools/*.cc bench/ep/*.cc bench/gin/*.cc)

mkdir -p $out
{
  cat <<NINJA
flags = -std=c++20 -O2 -DNDEBUG -DSWITCHYARD_HAVE_CUDA -DFMT_HEADER_ONLY -DSWITCHYARD_VERSION='"gpu"' -I. -Iinclude -Isrc $
  -Itests -isystem $deps/include
rule cc
  command = ${CXX:-g++} \$flags -fPIC \$includes -isystem $cuda/include -ffp-contract=off -pthread -MMD -MF \$out.d -c \$in -o \$out
  description = \$in
  depfile = \$out.d
rule cu
  command = $nvcc \$flags -Xcompiler=-fPIC -arch=sm_90 --fmad=false -MD -MF \$out.d -c \$in -o \$out
  description = \$in
  depfile = \$out.d
rule link
  description = \$out
  command = ${CXX:-g++} \$shared -o \$out \$in $deps/lib/libsodium.a $deps/lib/libhwy.so.1 $
    -Wl,-rpath,$PWD/$deps/lib -L$cuda/lib64 -lcudart_static -ldl -lrt -pthread
NINJA
  for source in $library $checks $tool; do echo "build $out/$source.o: ${source##*.} $source"; done
  for source in $binding; do
    echo "build $out/$source.o: cc $source"
    echo "  includes = $python_includes -fvisibility=hidden"
  done
  echo "build $out/python/switchyard/_core.so: link $(printf "$out/%s.o " $library $binding)"
  echo "  shared = -shared -Wl,--exclude-libs,ALL"
  echo "build $out/ll_gpu: link $(printf "$out/%s.o " $library $checks)"
  echo "build $out/switchyard: link $(printf "$out/%s.o " $library $tool)"
} > $out/build.ninja
ninja -f $out/build.ninja ${JOBS:+-j "$JOBS"} $out/ll_gpu $out/switchyard
if [[ -n $python_includes ]]; then
  ninja -f $out/build.ninja ${JOBS:+-j "$JOBS"} $out/python/switchyard/_core.so
  cp -r python/switchyard/. $out/python/switchyard/
fi
