#!/usr/bin/env bash
# run_read_only.sh ROOT MOUNT... -- ENVIRONMENT... -- RIGHTS... -- COMMAND...
#
# As a container runtime has it with a read-only root: of the image's files in ROOT nothing can be written. A MOUNT is
# SOURCE:TARGET, or SOURCE:TARGET:ro; RIGHTS are setpriv's options. To be run by `unshare --mount`, with --pid or,
# for a container that is to see all processes, without.
set -euo pipefail
root=$1
shift
mount --make-rprivate /
mount --bind "$root" "$root"
while [[ $1 != -- ]]; do
    IFS=: read -r source target option <<<"$1"
    mkdir -p "$root$target"
    mount --bind "$source" "$root$target"
    [[ -z $option ]] || mount -o "remount,$option,bind" "$root$target"
    shift
done
shift
environment=()
while [[ $1 != -- ]]; do
    environment+=("$1")
    shift
done
shift
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -o remount,ro,bind "$root"
exec env -i "${environment[@]}" /usr/sbin/chroot "$root" setpriv "$@"
