#!/usr/bin/env bash
# run_read_only.sh ROOT DATA KEYS ENVIRONMENT... -- COMMAND...
#
# As a container runtime has it with a read-only root, one volume and a user that isn't root: of the image's
# files in ROOT nothing can be written, DATA is /data, KEYS is /secret. To be run by `unshare --mount --pid`.
set -euo pipefail
root=$1 data=$2 keys=$3
shift 3
environment=()
while [[ $1 != -- ]]; do
    environment+=("$1")
    shift
done
shift
mount --make-rprivate /
mkdir -p "$root/secret"
mount --bind "$root" "$root"
mount --bind "$data" "$root/data"
mount --bind "$keys" "$root/secret"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,ro,bind "$root/secret"
mount -o remount,ro,bind "$root"
exec env -i "${environment[@]}" /usr/sbin/chroot --userspec=10001:10001 "$root" "$@"
