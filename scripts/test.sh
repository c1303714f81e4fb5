#!/usr/bin/env bash
# Checks style, types and layers, then runs the tests, unit tests first; sets up before that what isn't there yet.
# Arguments go to pytest, e.g. scripts/test.sh tests/unit -k config
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export RLTRAIN_VENV=${RLTRAIN_VENV:-$root/.venv}

"$root/scripts/setup.sh"
cd "$root"
export PATH=$RLTRAIN_VENV/bin:$PATH

failed=()
check() {
    printf '== %s\n' "$*"
    "$@" || failed+=("$*")
}

check ruff check .
check ruff format --check --quiet .
check pyright --pythonpath "$RLTRAIN_VENV/bin/python"
check lint-imports --no-logo
check python -m pytest --durations=15 --durations-min=5 "$@"

if ((${#failed[@]})); then
    printf 'test: failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
