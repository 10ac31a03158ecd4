#!/bin/sh
# Before a package is removed or replaced by another version: nobody stays held by a program that is no longer there. For
# Debian's prerm, RPM's %preun and their like.
#
# A daemon that is stopped releases everybody. What one that was killed has left, guard and all, is undone by the journal. If
# somebody stays held all the same, it fails: the program is still needed then.
#
# If the package goes for good, so does what `berth docker-shim install` has put beside docker: Debian says so with a word, RPM by
# how many versions are left.
set -eu

if [ -d /run/systemd/system ]; then
    systemctl stop berth.service berth-placer.service
fi
case "${1:-}" in
    remove | 0) berth docker-shim remove ;;
esac
exec berth release --all
