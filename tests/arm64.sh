#!/bin/sh
# Run tests with an arm64 Python under qemu, on Debian, as root: tests/arm64.sh [pytest's arguments]
# The arm64 root lies in $ARM64_ROOT and is made once. qemu shows no reordering: this tests function, not order.
set -eu
root=${ARM64_ROOT:-$HOME/.cache/penstock/arm64}
top=$(cd "$(dirname "$0")/.." && pwd)
binfmt=/proc/sys/fs/binfmt_misc
for command in debootstrap dpkg-deb qemu-aarch64-static unshare; do
    command -v $command > /dev/null || { echo "this needs: apt-get install debootstrap qemu-user-static"; exit 1; }
done

if [ ! -e "$root/.ready" ]; then
    . /etc/os-release
    mkdir -p "$root"
    debootstrap --arch=arm64 --foreign --variant=minbase --include=python3,libpython3-stdlib,libstdc++6,procps \
        "$VERSION_CODENAME" "$root"
    for package in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
    version=$(basename "$(readlink "$root/usr/bin/python3")")
    "$top/.venv/bin/python" - "$top/pyproject.toml" > "$root/requirements.txt" <<'PYTHON'
import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
tests = ["pytest", "pytest-timeout", "pytest-xdist", "hypothesis"]
print(*project["dependencies"], *project["optional-dependencies"]["kafka"], *tests, sep="\n")
PYTHON
    "$top/.venv/bin/python" -m pip install --quiet --no-compile --target "$root/usr/lib/python3/dist-packages" \
        --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 --only-binary=:all: \
        --implementation cp --python-version "${version#python}" --abi "cp$(echo "${version#python}" | tr -d .)" \
        --abi abi3 --abi none --constraint "$top/constraints.txt" --requirement "$root/requirements.txt"
    touch "$root/.ready"
fi

export root top binfmt
# Namespaces of its own, so that nothing stays mounted. Where no service has registered qemu, it is registered in them.
[ -e $binfmt/qemu-aarch64 ] && flags=-m || flags=-Urm
exec unshare $flags --propagation private sh -c '
    if [ ! -e $binfmt/qemu-aarch64 ]; then
        mount -t binfmt_misc none $binfmt && cat /usr/lib/binfmt.d/qemu-aarch64.conf > $binfmt/register
    fi
    for each in proc dev sys; do mount --rbind /$each "$root/$each"; done
    mkdir -p "$root/penstock" && mount --bind "$top" "$root/penstock"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 PYTHONPATH=/penstock \
        PYTHONDONTWRITEBYTECODE=1 sh -c "cd /penstock && exec python3 -m pytest -p no:cacheprovider \"\$@\"" pytest "$@"
' arm64 "$@"
