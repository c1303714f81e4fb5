#!/usr/bin/env bash
# Trains the tiny model of configs/quickstart.yaml with the real engines, after setting up what isn't there yet.
# Arguments go to `rltrain train`, e.g. scripts/quickstart.sh run.seed=2
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${RLTRAIN_VENV:-$root/.venv}

"$root/scripts/setup.sh"
exec "$venv/bin/rltrain" train "$root/configs/quickstart.yaml" "$@"
