#!/usr/bin/env bash
# Installs what `make test` needs and the machine lacks. Says what and why; does nothing the second time.
#
# Debian and Ubuntu. System packages come by apt-get (root or sudo); tools that no package holds, or whose package
# would bring a service along, go to .tools/ in the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

CARGO_DENY_VERSION=0.20.2
TOOLS="$PWD/.tools"
PATH="$TOOLS/bin:$PATH:/usr/sbin:/sbin"

apt_is_fresh=no
apt_fresh() {
    [ "$apt_is_fresh" = yes ] && return
    need apt-get "this script knows Debian and Ubuntu; elsewhere install docker, busybox and promtool by hand"
    as_root apt-get -qq update
    apt_is_fresh=yes
}

# package PROGRAM PACKAGE WHY
package() {
    command -v "$1" >/dev/null && return
    say "installing $2: $3"
    apt_fresh
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "$2" >/dev/null
}

fetch_promtool() {
    command -v promtool >/dev/null && return
    say "fetching promtool into .tools/: it judges the metrics page; taken out of the package 'prometheus', whose server stays uninstalled"
    apt_fresh
    local work
    work=$(mktemp -d)
    (
        cd "$work"
        chmod 755 .
        apt-get -qq -o APT::Sandbox::User=root download prometheus
        dpkg-deb -x prometheus_*.deb tree
    )
    install -D "$work/tree/usr/bin/promtool" "$TOOLS/bin/promtool"
    rm -rf "$work"
}

build_cargo_deny() {
    [ "$(cargo-deny --version 2>/dev/null)" = "cargo-deny $CARGO_DENY_VERSION" ] && return
    say "building cargo-deny $CARGO_DENY_VERSION into .tools/ (a minute or more, once): it judges licences and sources of dependencies"
    # Unoptimised: it runs for a second and would take twice as long to build.
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --version "$CARGO_DENY_VERSION" --root "$TOOLS" cargo-deny
}

need_build_tools
package dockerd docker.io "the tests watch real containers"
package docker docker-cli "the scripts build the test image with it"
package docker-compose docker-compose "a test starts the documentation's Compose file with it"
package busybox busybox-static "the test image is made of it, so that no registry is needed"
package ip iproute2 "the tests run a swarm of three nodes on this machine, each in a network namespace"
package systemctl systemd "the tests run berth's unit under it, in namespaces; nothing of the machine is started by it"
package shellcheck shellcheck "checks the scripts of this repository"
fetch_promtool
build_cargo_deny
say "set-up complete"
