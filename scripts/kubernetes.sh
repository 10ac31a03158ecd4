#!/usr/bin/env bash
# A Kubernetes of our own for tests: etcd, an API server and, if asked for, a scheduler, all on ports of 127.0.0.1.
#
#   kubernetes.sh build                  builds the programs into .tools/kubernetes, where they are missing
#   kubernetes.sh start DIR [EXTENDER]   starts one whose data is under DIR; prints the path of the administrator's kubeconfig.
#                                        With EXTENDER (http://HOST:PORT/PATH) a scheduler too, which asks that extender and
#                                        goes on without it
#   kubernetes.sh controllers DIR        starts its controller manager: nodes that fall silent are marked, pods are made
#   kubernetes.sh stop-api-server DIR, start-api-server DIR
#                                        the API server alone: what it knows is etcd's
#   kubernetes.sh stop DIR               ends it and deletes what it left
#   kubernetes.sh status DIR             says what of it runs; fails unless all that was started does
#
# Nodes are objects that tests make; kubernetes/node.sh joins a real one. Rights are checked (RBAC). DIR/tokens.csv names the users, for
# each there is a DIR/USER.kubeconfig; BERTH_KUBERNETES_USERS adds lines `TOKEN,USER,UID` to it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/kubernetes/programs.sh
. "$(dirname "$0")/kubernetes/programs.sh"

HERE=$(cd "$(dirname "$0")" && pwd)
BIN=$(cd "$HERE/.." && pwd)/.tools/kubernetes/bin
PROGRAMS="kube-controller-manager kube-scheduler kube-apiserver etcd"
# Seconds a program has to answer.
READY_S=60

usage() { die "usage: $(basename "$0") build | start DIR [EXTENDER] | controllers DIR | {stop,start}-api-server DIR | stop DIR | status DIR"; }

# launch PROGRAM ARGUMENTS…: in a session of its own, so that it outlives this script.
launch() {
    local program=$1
    shift
    setsid "$BIN/$program" "$@" </dev/null >"$dir/$program.log" 2>&1 8>&- 9>&- &
    echo $! >"$dir/$program.pid"
}

certificates() {
    local pki="$dir/pki"
    mkdir -p "$pki"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=berth test" \
        -keyout "$pki/ca.key" -out "$pki/ca.crt" 2>/dev/null
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=kube-apiserver" \
        -keyout "$pki/apiserver.key" -out "$pki/apiserver.csr" 2>/dev/null
    openssl x509 -req -in "$pki/apiserver.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 2 \
        -extfile <(echo "subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc") \
        -out "$pki/apiserver.crt" 2>/dev/null
    openssl genrsa -out "$pki/accounts.key" 2048 2>/dev/null
}

# kubeconfig USER TOKEN
kubeconfig() {
    cat >"$dir/$1.kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:$api_port", certificate-authority: "$dir/pki/ca.crt"}}]
users: [{name: "$1", user: {token: "$2"}}]
contexts: [{name: test, context: {cluster: test, user: "$1"}}]
current-context: test
END
}

users() {
    local token user rest
    {
        echo 'admin-token,admin,admin,system:masters'
        echo 'scheduler-token,system:kube-scheduler,scheduler'
        echo 'controllers-token,controllers,controllers,system:masters'
        echo 'kubelet-token,kubelet,kubelet,system:masters'
        if [ -n "${BERTH_KUBERNETES_USERS:-}" ]; then printf '%s\n' "$BERTH_KUBERNETES_USERS"; fi
    } >"$dir/tokens.csv"
    while IFS=, read -r token user rest; do
        kubeconfig "${user##*:}" "$token"
    done <"$dir/tokens.csv"
}

etcd() {
    launch etcd --data-dir "$dir/etcd" --listen-client-urls "http://127.0.0.1:$etcd_port" \
        --advertise-client-urls "http://127.0.0.1:$etcd_port" --listen-peer-urls "http://127.0.0.1:$peer_port" \
        --initial-advertise-peer-urls "http://127.0.0.1:$peer_port" --initial-cluster "default=http://127.0.0.1:$peer_port" \
        --quota-backend-bytes 2147483648 --unsafe-no-fsync
}

api_server() {
    local etcd_port api_port
    read -r etcd_port api_port <"$dir/ports"
    launch kube-apiserver --etcd-servers "http://127.0.0.1:$etcd_port" --bind-address 127.0.0.1 --secure-port "$api_port" \
        --tls-cert-file "$dir/pki/apiserver.crt" --tls-private-key-file "$dir/pki/apiserver.key" --cert-dir "$dir/pki" \
        --token-auth-file "$dir/tokens.csv" --authorization-mode RBAC --service-cluster-ip-range 10.96.0.0/24 \
        --service-account-key-file "$dir/pki/accounts.key" --service-account-signing-key-file "$dir/pki/accounts.key" \
        --service-account-issuer https://kubernetes.default.svc --disable-admission-plugins ServiceAccount \
        --max-requests-inflight 0 --max-mutating-requests-inflight 0 --feature-gates APIPriorityAndFairness=false
}

start_api_server() {
    api_server
    if ! wait_until "$READY_S" is_ready_or_dead || ! is_ready; then
        tail -n 20 "$dir/kube-apiserver.log" >&2
        stop
        die "kube-apiserver was not ready within $READY_S s; its last lines are above"
    fi
}

is_ready() { kubectl --kubeconfig "$dir/admin.kubeconfig" get --raw /readyz >/dev/null 2>&1; }
is_ready_or_dead() { is_ready || is_gone kube-apiserver; }

# What a scheduler goes by. Without `weight` the extender's scores would not count; `ignorable`: while the extender is down,
# pods are placed without it.
scheduler() {
    # Its two listeners cannot be switched off.
    local port
    port=$(free_port)
    cat >"$dir/scheduler.yaml" <<END
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
healthzBindAddress: "127.0.0.1:$port"
metricsBindAddress: "127.0.0.1:$port"
clientConnection: {kubeconfig: "$dir/kube-scheduler.kubeconfig", qps: 1000, burst: 2000}
extenders:
  - urlPrefix: "$1"
    filterVerb: filter
    prioritizeVerb: prioritize
    bindVerb: bind
    weight: 100
    nodeCacheCapable: true
    ignorable: true
    httpTimeout: 5s
END
    launch kube-scheduler --config "$dir/scheduler.yaml" --secure-port 0
}

start() {
    stop
    if [ ! -x "$BIN/kube-scheduler" ] || [ ! -x "$BIN/kube-apiserver" ]; then
        "$HERE/kubernetes/build.sh" >&2
    fi
    mkdir -p "$dir"
    api_port=$(free_port) etcd_port=$(free_port) peer_port=$(free_port)
    certificates
    users
    echo "$etcd_port $api_port" >"$dir/ports"
    etcd
    start_api_server
    if [ -n "${1:-}" ]; then scheduler "$1"; fi
    echo "$dir/admin.kubeconfig"
}

controllers() {
    launch kube-controller-manager --kubeconfig "$dir/controllers.kubeconfig" --leader-elect=false --port 0 --secure-port 0 \
        --service-account-private-key-file "$dir/pki/accounts.key" --root-ca-file "$dir/pki/ca.crt"
}

stop() {
    local program
    # A node that was joined to it (kubernetes/node.sh).
    if [ -d "$dir/node" ]; then "$HERE/kubernetes/node.sh" stop "$dir"; fi
    for program in $PROGRAMS; do end "$program"; done
    # Only what is ours: DIR may hold the caller's files too.
    for program in $PROGRAMS; do rm -f "$dir/$program.pid" "$dir/$program.log"; done
    rm -rf "$dir/etcd" "$dir/pki" "$dir/tokens.csv" "$dir/ports" "$dir/scheduler.yaml" "$dir"/*.kubeconfig
    rmdir "$dir" 2>/dev/null || true
}

status() {
    local program all_run=0 pid
    for program in $PROGRAMS; do
        [ -e "$dir/$program.pid" ] || continue
        if pid=$(pid_of "$program"); then
            say "$program runs, pid $pid"
        else
            say "$program has ended; its log is $dir/$program.log"
            all_run=1
        fi
    done
    return "$all_run"
}

[ $# -ge 1 ] || usage
[ "$1" = build ] && exec "$HERE/kubernetes/build.sh"
[ $# -ge 2 ] || usage
mkdir -p "$2"
dir=$(cd "$2" && pwd)
state=$dir
case "$1" in
    start) start "${3:-}" ;;
    controllers) controllers ;;
    stop-api-server) end kube-apiserver ;;
    start-api-server) start_api_server ;;
    stop) stop ;;
    status) status ;;
    *) usage ;;
esac
