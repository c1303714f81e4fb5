#!/usr/bin/env bash
# Makes the virtual environment that rltrain is run and tested with on a CPU, from requirements/cpu.lock.
# A second call finds the work done and ends at once; a call after a failed one goes on where that stopped.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lock=$root/requirements/cpu.lock
venv=${RLTRAIN_VENV:-$root/.venv}
torch_index=${RLTRAIN_TORCH_INDEX:-}
needed_gib=5

usage() {
    cat <<'TEXT'
usage: scripts/setup.sh [--torch-index URL] [--venv DIR]

  --torch-index URL  package index to take torch from, for machines where pip would
                     fetch the CUDA build: PyTorch's own index of CPU builds
                     (or set RLTRAIN_TORCH_INDEX, which quickstart.sh and test.sh see too)
  --venv DIR         where to make the environment; .venv by default (or RLTRAIN_VENV)

PYTHON names the Python 3.11 to use; python3.11 by default.
TEXT
}

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

while (($#)); do
    case $1 in
        --torch-index | --venv)
            (($# >= 2)) || fail "$1 needs a value"
            if [[ $1 == --venv ]]; then venv=$2; else torch_index=$2; fi
            shift 2
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            usage >&2
            fail "unknown argument: $1"
            ;;
    esac
done

stamp=$venv/rltrain-setup.stamp
fingerprint=$({ cat "$lock" "$root/pyproject.toml" && printf '%s' "$root"; } | sha256sum)
if [[ -x $venv/bin/python && -f $stamp && $(<"$stamp") == "$fingerprint" ]]; then
    exit 0
fi

is_python_311() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null
}

check_disk() {
    local free_gib
    mkdir -p "$venv"
    free_gib=$(df -Pk "$venv" | awk 'NR == 2 {print int($4 / 1048576)}')
    ((free_gib >= needed_gib)) || fail "$venv has $free_gib GiB free and the packages need $needed_gib" \
        "free some space, or name another place with --venv DIR"
}

make_venv() {
    local python=${PYTHON:-python3.11}
    is_python_311 "$python" || fail "'$python' is not a Python 3.11, which requirements/cpu.lock is for" \
        "install Python 3.11 (with its venv module), or set PYTHON to one"
    check_disk
    "$python" -m venv "$venv" || fail "'$python -m venv' failed (on Debian its module is the package python3.11-venv)"
}

pip_install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps "$@" >>"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        fail "pip failed; its whole output is in $log" "call scripts/setup.sh again to go on from here"
    }
}

# The CUDA build comes without its CUDA libraries here and can't even be imported: say so before all else is installed.
check_torch_build() {
    local version_file=$venv/lib/python3.11/site-packages/torch/version.py cuda
    cuda=$("$venv/bin/python" -c 'import runpy, sys; print(runpy.run_path(sys.argv[1])["cuda"])' "$version_file")
    [[ $cuda == None ]] && return
    "$venv/bin/python" -m pip uninstall --quiet --yes torch
    fail "pip took torch's CUDA $cuda build, and the CPU build is needed here" \
        "call scripts/setup.sh --torch-index URL with the URL of PyTorch's own index of CPU builds"
}

[[ -x $venv/bin/python ]] || make_venv
is_python_311 "$venv/bin/python" || fail "$venv is not an environment of Python 3.11; remove it or name another with --venv DIR"

log=$venv/rltrain-setup.log
: >"$log"
echo "setup: installing the packages of requirements/cpu.lock into $venv (some minutes, 4 GB)"
torch_pin=$(grep -E '^torch==' "$lock")
pip_install ${torch_index:+--index-url "$torch_index"} "$torch_pin"
check_torch_build
pip_install -r "$lock"
pip_install --no-build-isolation -e "$root"
printf '%s' "$fingerprint" >"$stamp"
echo "setup: done; '$venv/bin/rltrain doctor' says what is installed"
