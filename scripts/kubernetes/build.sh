#!/usr/bin/env bash
# Builds kube-apiserver, kube-scheduler, kube-controller-manager and kubelet into .tools/kubernetes/bin; etcd goes there too.
#
# From Debian's source package, since no package registry holds these programs as binaries. Minutes, once: what is there
# is kept. The package indexes it needs go to a directory of its own, so the machine's list of sources stays as it is.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

VERSION=1.20.2
PROGRAMS="kube-apiserver kube-scheduler kube-controller-manager kubelet"
CACHE="$PWD/.tools/kubernetes"
WORK="$CACHE/work"

# apt-get with our own sources and lists: source packages are not in the machine's.
apt_own() {
    apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$WORK/sources" \
        -o Dir::State::lists="$WORK/lists" -o Dir::Cache="$WORK/cache" -o APT::Sandbox::User=root "$@"
}

package() {
    command -v "$1" >/dev/null && return
    say "installing $2: $3"
    as_root apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$2" >/dev/null
}

own_sources() {
    mkdir -p "$WORK/sources" "$WORK/lists/partial" "$WORK/cache/archives/partial"
    cat >"$WORK/sources/bookworm.sources" <<END
Types: deb deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    apt_own update
}

fetch_etcd() {
    [ -x "$CACHE/bin/etcd" ] && return
    say "fetching etcd out of its package, whose service stays uninstalled"
    (cd "$WORK" && apt_own download etcd-server && dpkg-deb -x etcd-server_*.deb etcd)
    install -D "$WORK/etcd/usr/bin/etcd" "$CACHE/bin/etcd"
}

unpack() {
    local tree="$GOPATH/src/k8s.io/kubernetes" reflect2=vendor/github.com/modern-go/reflect2
    mkdir -p "$tree"
    (
        cd "$WORK"
        apt_own source --download-only kubernetes
        tar -xzf kubernetes_*.orig.tar.gz -C "$tree" --strip-components=1
        apt_own download golang-github-modern-go-reflect2-dev
        dpkg-deb -x golang-github-modern-go-reflect2-dev_*.deb reflect2
    )
    # The reflect2 in the source is 1.0.1: it faults on the first custom resource when built by Go 1.18 or newer.
    rm -rf "${tree:?}/$reflect2"
    cp -r "$WORK/reflect2/usr/share/gocode/src/github.com/modern-go/reflect2" "$tree/$reflect2"
}

# The description of the API is generated at build time: the API server does not compile without it.
openapi() {
    local inputs
    go build -o "$WORK/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    # Real directories only: vendor/k8s.io holds links to staging/, which are named by their vendored path.
    inputs=$(grep -rl '+k8s:openapi-gen=' pkg staging/src/k8s.io --include='*.go' | grep -v zz_generated |
        xargs -n1 dirname | sort -u | grep -vE '/(code-generator|sample-apiserver|kube-openapi)' |
        sed -e 's,^staging/src/,vendor/,' -e 's,^,k8s.io/kubernetes/,' | paste -sd,)
    "$WORK/openapi-gen" -O zz_generated.openapi -p k8s.io/kubernetes/pkg/generated/openapi -i "$inputs" \
        -h hack/boilerplate/boilerplate.generatego.txt -r "$WORK/violations" -o "$GOPATH/src"
}

compile() {
    local version=k8s.io/kubernetes/vendor/k8s.io/component-base/version program
    for program in $PROGRAMS; do
        say "building $program"
        go build -o "$WORK/$program" \
            -ldflags "-s -w -X $version.gitVersion=v$VERSION -X $version.gitMajor=1 -X $version.gitMinor=20" "./cmd/$program"
        install -D "$WORK/$program" "$CACHE/bin/$program"
    done
}

is_complete() {
    local program
    for program in etcd $PROGRAMS; do
        [ -x "$CACHE/bin/$program" ] || return 1
    done
}

is_complete && exit 0
need apt-get "this script knows Debian 12"
mkdir -p "$CACHE"
exec 8>"$CACHE/lock"
flock 8
is_complete && exit 0
say "building Kubernetes $VERSION into .tools/kubernetes (about ten minutes on two cores, once)"
package go golang-go "the compiler of Kubernetes"
package dpkg-source dpkg-dev "unpacks its source"
package kubectl kubernetes-client "speaks to the API server"
package openssl openssl "makes the certificates of the API server"
rm -rf "$WORK"
own_sources
fetch_etcd
# Outside of modules: the source's vendor directory is not as Go's module mode wants it.
export GOPATH="$WORK/go" GO111MODULE=off GOCACHE="$WORK/gocache" CGO_ENABLED=0 GOFLAGS=
unpack
cd "$GOPATH/src/k8s.io/kubernetes"
openapi
compile
rm -rf "$WORK"
say "Kubernetes $VERSION is in .tools/kubernetes/bin"
