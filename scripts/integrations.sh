#!/usr/bin/env bash
# Tests of the Python package with current releases from PyPI (torch, transformers; what Debian has is older), in a virtual environment
# below the build folder. Needs a network the first time.
#
#   integrations.sh BUILD_DIR
set -euo pipefail
build_dir=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
environment=$build_dir/integrations-venv

if [[ ! -x $environment/bin/python ]]; then
  /usr/bin/python3 -m venv "$environment"  # the Python that build/python is for
fi
"$environment/bin/pip" install --quiet --upgrade ml_dtypes numpy pytest torch transformers

export PYTHONPATH=$build_dir/python OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
cd "$here/tests/python"
# The same tests as with Debian's packages, then those that need the newer ones.
"$environment/bin/python" -m pytest test_tensor.py test_arguments.py test_lifetime.py integrations
for num_ranks in 2 4; do
  "$build_dir/bin/switchyard" run -n $num_ranks -- "$environment/bin/python" -m pytest test_moe.py test_torch.py integrations
done
