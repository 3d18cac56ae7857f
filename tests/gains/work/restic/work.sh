#!/bin/sh
# Back up folders with restic, check what it stored, and restore it:
#
#     work.sh RESTIC [-cpuprofile=FILE] LAST FOLDER ...
#
# LAST is the last of these three steps, and the one that is profiled. Each run begins with a copy of one empty
# repository: a new one would have a key that takes another time to derive, and other cuts between chunks.
set -eu
restic=$1
shift
profile=
case $1 in -cpuprofile=*)
    profile=$1
    shift
    ;;
esac
last=$1
shift
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
cp -r "$(dirname "$0")/repository" "$scratch/repository"
export RESTIC_PASSWORD=restic

step() { # a command of restic, after which all is done if it is the last one
    if [ "$1" = "$last" ]; then
        "$restic" ${profile:+"$profile"} --quiet --no-cache --repo "$scratch/repository" "$@"
        exit
    fi
    "$restic" --quiet --no-cache --repo "$scratch/repository" "$@"
}

step backup "$@"
step check --read-data
step restore latest --target "$scratch/restored"
