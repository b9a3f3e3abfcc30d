exec 3>&0 </dev/null 4>&2 2>/dev/null
if [ "$1" = 1 ]; then exec >/dev/null; fi
ulimit -d "$2"
ulimit -v "$3"
ulimit -u "$4" || ulimit -p "$4"
ulimit -f "$5"
ulimit -t "$6"
ulimit -n 1024
ulimit -c 0
echo 1000 >/proc/self/oom_score_adj
shift 6
exec 2>&4 4>&- "$@"
