#!/usr/bin/env bash
# The fuzzers of tests/fuzz, which need clang: built into build-fuzz/ beside the build of everything else.
#
#   scripts/fuzz.sh build                 configure and build; nothing happens where clang++-16 is missing
#   scripts/fuzz.sh run NAME SECONDS      run one on its corpus and beyond; 77 (skipped) if it was not built
#   scripts/fuzz.sh keep NAME SECONDS     run, then take into its corpus what reaches new code, as little as possible
#
# An input that breaks something is left in build-fuzz/found/; `build-fuzz/bin/fuzz_NAME FILE` repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  build)
    command -v clang++-16 >/dev/null || { echo "fuzz: no clang++-16, nothing to build"; exit 0; }
    cmake --preset fuzz > build-fuzz.log 2>&1 || { cat build-fuzz.log; exit 1; }
    cmake --build --preset fuzz
    ;;
  run | keep)
    fuzzer=build-fuzz/bin/fuzz_$2
    corpus=tests/fuzz/corpus/$2
    [[ -x $fuzzer ]] || exit 77
    # What is found goes into a folder of this run: the kept corpus changes only by `keep`.
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p build-fuzz/found "$work/new" "$work/all"
    # libFuzzer's own exit code for a find is 77, which would pass for skipped.
    "$fuzzer" -max_total_time="$3" -max_len=4096 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 -reload=0 \
      -error_exitcode=1 -timeout_exitcode=1 -artifact_prefix="build-fuzz/found/$2-" "$work/new" "$corpus" 2>&1 | grep -Ev '^#|NEW_FUNC'
    if [[ $1 == keep ]]; then
      "$fuzzer" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$work/all" "$corpus" "$work/new" 2>&1 | tail -n 1
      rm -rf "$corpus"
      mv "$work/all" "$corpus"
    fi
    ;;
  *)
    sed -n '2,8p' "$0"
    exit 2
    ;;
esac
