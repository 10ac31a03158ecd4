# shellcheck shell=bash
# Programs that outlive the script which started them: each has PROGRAM.pid in $state. Sourced, after lib.sh.

# Seconds a program has to end.
END_S=20

# A pid file outlives its process: believe it only while that pid is the program.
pid_of() {
    local pid
    # The kernel keeps 15 letters of a name.
    # shellcheck disable=SC2154 # said by whoever sources this
    pid=$(cat "$state/$1.pid" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "${1:0:15}" ] && echo "$pid"
}
is_gone() { ! pid_of "$1" >/dev/null; }

end() {
    local pid
    pid=$(pid_of "$1") || return 0
    kill "$pid"
    wait_until "$END_S" is_gone "$1" || kill -9 "$pid"
}

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
}
