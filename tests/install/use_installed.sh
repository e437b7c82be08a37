#!/usr/bin/env bash
# Installs a build into a temporary folder, moves that, and builds and runs programs against it: C and C++ with CMake, C
# with pkg-config.
#
#   use_installed.sh BUILD_DIR EXAMPLES LIBDIR COMMAND...     LIBDIR: below the prefix; COMMAND: what must be in bin/
set -euo pipefail
build_dir=$1 examples=$2 libdir=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$CMAKE" --install "$build_dir" --prefix "$work/first" > "$work/install.log" || { cat "$work/install.log"; exit 1; }
prefix=$work/moved
mv "$work/first" "$prefix"  # nothing may remember where it was installed

for command in "$@"; do
  [[ -x $prefix/bin/$command ]] || { echo "bin/$command is not installed"; exit 1; }
done

run() { "$prefix/bin/switchyard" run -n 2 -- "$@"; }

with_cmake() {  # a folder beside this script
  echo "== $1: CMake"
  "$CMAKE" -S "$here/$1" -B "$work/$1" -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLES="$examples" > "$work/$1.log" &&
    "$CMAKE" --build "$work/$1" >> "$work/$1.log" || { cat "$work/$1.log"; exit 1; }
  run "$work/$1/program"
}
with_cmake c_program
with_cmake cxx_program
run "$work/cxx_program/kernels"

echo "== c_program: pkg-config"
export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig
read -ra flags <<< "$("$PKG_CONFIG" --cflags --libs nccl_ep)"
"$CC" "$examples/moe_decode.c" -o "$work/program" "${flags[@]}" -lm
LD_LIBRARY_PATH=$prefix/$libdir run "$work/program"
