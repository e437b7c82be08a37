#!/usr/bin/env bash
# The sanitizer share of `make test`: thread sanitizer over ranks as threads, address and undefined-behaviour sanitizers
# over a set that changes from day to day (all of it: SWITCHYARD_SANITIZE_ALL=1, as in `make soak`).
#
#   scripts/sanitizers.sh build             configure and build both into build-tsan/ and build-asan-ubsan/
#   scripts/sanitizers.sh run tsan          run what was built; 77 (skipped) if nothing was
set -euo pipefail
cd "$(dirname "$0")/.."

# One line a day. Each needs its folder of tests/ among the areas below.
asan_sets=(
  "ll_smoke_test"
  "nccl_ep_test lifetime_test"
  "bootstrap_test handshake_test frame_test"
  "ll_interleave_test"
  "ht_smoke_test ht_backward_test ht_memory_test ht_plan_test ht_interleave_test"
  "net_endpoint_test net_stranger_test net_reconnect_test net_refusal_test net_leave_test signal_order_test net_fault_test net_checksum_test net_proxy_test"
  "device_test stream_test rows_test"
  "coll_test coll_pairs_test coll_errors_test"
)
areas="oracle;coll;ep;capi;comm;net;device;platform"

programs() {
  if [[ $1 == tsan ]]; then
    echo ll_tsan_test ll_interleave_test ht_tsan_test ht_interleave_test net_proxy_test net_progress_test net_endpoint_test net_reconnect_test net_refusal_test net_leave_test device_test coll_test coll_pairs_test
  elif [[ -n ${SWITCHYARD_SANITIZE_ALL:-} ]]; then
    echo "${asan_sets[*]} ll_random_test ll_matrix_test ht_random_test ht_matrix_test"
  else
    echo "${asan_sets[$(($(date +%s) / 86400 % ${#asan_sets[@]}))]}"
  fi
}

# A program that skipped some of its tests has passed the others, and is named.
may_skip() { [[ $1 -eq 77 ]] && skipped+=" $program"; }

case ${1:-} in
  build)
    for preset in tsan asan-ubsan; do
      cmake --preset $preset -DSWITCHYARD_TEST_AREAS="$areas" -DSWITCHYARD_TOOLS=OFF -DSWITCHYARD_BENCH=OFF \
        -DSWITCHYARD_EXAMPLES=OFF > build-$preset.log 2>&1 || { cat build-$preset.log; exit 1; }
      # shellcheck disable=SC2046
      cmake --build build-$preset --target $(programs $preset)
    done
    ;;
  run)
    skipped=
    for program in $(programs "$2"); do
      [[ -x build-$2/bin/$program ]] || exit 77
      echo "== $program ($2)"
      # Random tests take long under a sanitizer; a tenth of the cases is enough to touch every path.
      # Brief, so that what failed is not lost among what passed.
      export GTEST_BRIEF=1 LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp SWITCHYARD_RANDOM_CASES=${SWITCHYARD_RANDOM_CASES:-500}
      "build-$2/bin/$program" || may_skip $?
      # Once more with ranks on two nodes: the network's progress, and the proxy.
      if [[ $program == *_tsan_test ]]; then
        export SWITCHYARD_TEST_NODES=2 SWITCHYARD_NET=ofi
        if [[ -n ${SWITCHYARD_SANITIZE_ALL:-} ]]; then
          for gin in direct proxy; do SWITCHYARD_GIN=$gin SWITCHYARD_ROUND_TRIPS=200 "build-$2/bin/$program" || may_skip $?; done
        else
          SWITCHYARD_GIN=proxy SWITCHYARD_ROUND_TRIPS=20 "build-$2/bin/$program" || may_skip $?
        fi
        unset SWITCHYARD_TEST_NODES SWITCHYARD_NET
      fi
      # Once more with progress threads that share the rings.
      [[ $program != device_test ]] || SWITCHYARD_PROGRESS_THREADS=3 "build-$2/bin/$program" --gtest_filter='*proxy*' || may_skip $?
      # Once more over two rails.
      [[ $program != net_endpoint_test ]] || SWITCHYARD_INTERFACE=lo,lo "build-$2/bin/$program" --gtest_filter='*/ofi' || may_skip $?
    done
    [[ -z $skipped ]] || { echo "skipped some of their tests:$skipped"; exit 77; }
    ;;
  *)
    sed -n '2,6p' "$0"
    exit 2
    ;;
esac
