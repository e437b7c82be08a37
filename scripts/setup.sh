#!/usr/bin/env bash
# Installs the Debian packages that the build, the tests and the benchmarks need. Does nothing, quickly, when they are
# all there. Root is needed only for what is missing.
set -euo pipefail

packages=(
  build-essential g++ cmake ninja-build ccache pkg-config                    # tool chain
  libsodium-dev libhwloc-dev libhwy-dev libfabric-dev libxxhash-dev          # the library
  libcli11-dev libfmt-dev nlohmann-json3-dev                                 # the switchyard command
  libgtest-dev libgmock-dev librapidcheck-dev                                # tests
  pybind11-dev python3-dev python3-venv python3-numpy python3-pytest python3-torch mypy  # the Python package and its tests
  nmap clang-16 libclang-rt-16-dev                                           # tests: strangers, fuzzers
  iproute2 iptables util-linux openssh-client                                # tests: hosts and cables of their own; run --hosts
  libbenchmark-dev openmpi-bin libopenmpi-dev                                # benchmarks and their baseline
)
# A test starts an ssh server of its own. Where installing one would leave a service running, that is not ours to decide: the test is skipped.
[[ -d /run/systemd/system ]] || packages+=(openssh-server)

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is no Debian system; install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

# One line per package that is fully installed, virtual or unknown ones give none.
installed=$(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
  sed -n 's/ installed$//p' || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup: missing ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
