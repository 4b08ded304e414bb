#!/bin/sh
# The image's base, from Debian's packages alone: no registry is asked. It takes mmdebstrap and buildah.
#   docs/containers/base.sh [NAME [SUITE]]
# Where there is neither overlayfs nor a user namespace: export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
set -eu
name=${1:-localhost/fedsac-base}
suite=${2:-bookworm}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$work/base.tar"
container=$(buildah from scratch)
buildah add --quiet "$container" "$work/base.tar" / >/dev/null
buildah commit --quiet --rm "$container" "$name"
