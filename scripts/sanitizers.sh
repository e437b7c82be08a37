#!/usr/bin/env bash
# The sanitizer share of `make test`: thread sanitizer over ranks as threads, address and undefined-behaviour sanitizers
# over a subset that changes from day to day (all of it: SWITCHYARD_SANITIZE_ALL=1, as in `make soak`).
#
#   scripts/sanitizers.sh build             configure and build both into build-tsan/ and build-asan-ubsan/
#   scripts/sanitizers.sh run tsan          run what was built; 77 (skipped) if nothing was
set -euo pipefail
cd "$(dirname "$0")/.."

programs() {
  if [[ $1 == tsan ]]; then
    echo ll_tsan_test ll_interleave_test
    return
  fi
  local sets=("ll_smoke_test" "ll_interleave_test")
  if [[ -n ${SWITCHYARD_SANITIZE_ALL:-} ]]; then
    echo "${sets[*]} ll_random_test ll_matrix_test"
  else
    echo "${sets[$(($(date +%s) / 86400 % ${#sets[@]}))]}"
  fi
}

case ${1:-} in
  build)
    for preset in tsan asan-ubsan; do
      cmake --preset $preset -DSWITCHYARD_TEST_AREAS="oracle;ep" -DSWITCHYARD_TOOLS=OFF -DSWITCHYARD_BENCH=OFF \
        -DSWITCHYARD_EXAMPLES=OFF > build-$preset.log 2>&1 || { cat build-$preset.log; exit 1; }
      # shellcheck disable=SC2046
      cmake --build build-$preset --target $(programs $preset)
    done
    ;;
  run)
    for program in $(programs "$2"); do
      [[ -x build-$2/bin/$program ]] || exit 77
      echo "== $program ($2)"
      # Random tests take long under a sanitizer; a tenth of the cases is enough to touch every path.
      SWITCHYARD_RANDOM_CASES=${SWITCHYARD_RANDOM_CASES:-500} "build-$2/bin/$program"
    done
    ;;
  *)
    sed -n '2,7p' "$0"
    exit 2
    ;;
esac
