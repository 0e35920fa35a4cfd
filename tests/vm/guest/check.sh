# What every part starts with: anet installed as the package does it, and the words of a check.
#
#   check NAME COMMAND...          the command's status is 0
#   status N NAME COMMAND...       it is N; what it wrote is in $out
#   holds NAME PATTERN             $out has a line that the extended expression matches
#   lacks NAME PATTERN             it has none

failures=0
out=

install -d /usr/libexec/anet
for program in /vmtest/programs/*; do
    case ${program##*/} in
        anet) install -m 755 "$program" /usr/bin/ ;;
        *) install -m 755 "$program" /usr/libexec/anet/ ;;
    esac
done

good() { echo "ok    $*"; }
bad() { echo "FAIL  $*"; sed 's/^/      | /' <<<"$out"; failures=$((failures + 1)); }
status() {
    local wanted=$1 name=$2 found=0
    shift 2
    out=$("$@" 2>&1) || found=$?
    if [ $found = "$wanted" ]; then good "$name"; else bad "$name: status $found, not $wanted"; fi
}
check() { local name=$1; shift; status 0 "$name" "$@"; }
holds() { if grep -Eq -- "$2" <<<"$out"; then good "$1"; else bad "$1: nothing like $2"; fi; }
lacks() { if grep -Eq -- "$2" <<<"$out"; then bad "$1: $2"; else good "$1"; fi; }
finish() { echo "$failures failed"; [ $failures = 0 ]; }

# The two who run anet: root by itself, and an ordinary user with nothing in the environment.
as_user() { runuser -u tester -- env -i HOME=/home/tester PATH=/usr/bin:/bin LANG=C.UTF-8 "$@"; }
as_user_with_manager() { as_user XDG_RUNTIME_DIR=/run/user/1000 "$@"; }
start_user_manager() {
    loginctl enable-linger tester
    for _ in $(seq 300); do if [ -S /run/user/1000/bus ]; then return; fi; sleep 0.1; done
    bad "the user manager does not start"
}
