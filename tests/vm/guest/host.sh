# anet on a usual host: root and an ordinary user, with and without a user manager; limits by systemd's control groups.
cd /vmtest && . guest/check.sh
landlock=$1
record=/tmp/record
no_record() { rm -f $record; }

hog='b = bytearray(300 * 1024 * 1024)'
forks='
import os, time
made = 0
for attempt in range(40):
    try:
        if os.fork() == 0:
            time.sleep(2)
            os._exit(0)
        made += 1
    except OSError as error:
        print(error.errno, made)
        break
print("went on")'

usual() { # NAME RUNNER...
    local who=$1; shift
    check "$who: a command runs" "$@" anet run -- true
    status 7 "$who: its status is the command's" "$@" anet run -- sh -c 'exit 7'
    check "$who: the doctor is content" "$@" anet doctor
    check "$who: the doctor in JSON" "$@" anet doctor --json
    holds "$who: SBX-7: Landlock $landlock" "\"landlock_abi\":$landlock[,}]"
    check "$who: a file moves between directories" "$@" anet run -- sh -c \
        'mkdir a b; echo x > a/f; mv a/f b/f; ln b/f a/g; cat a/g'
}

limited() { # NAME RUNNER...
    local who=$1; shift
    no_record
    status 123 "$who: LIM-1: memory ends the run" \
        "$@" anet run --limit memory=64MiB --record $record -- python3 -c "$hog"
    out=$(cat $record)
    holds "$who: the record says which" '"exit":\{"limit":"memory"\}'
    no_record
    check "$who: LIM-1: a task too many fails to fork" \
        "$@" anet run --limit tasks=16 --record $record -- python3 -c "$forks"
    holds "$who: with EAGAIN, after 15 beside the first" '^11 15$'
    holds "$who: and the run goes on" '^went on$'
    out=$(cat $record)
    holds "$who: the record counts them" '"tasks":\{"limit":16,"used":16\}'
    no_record
    check "$who: all limits hold" "$@" anet run --untrusted --record $record -- true
    lacks "$who: no warning" no_cgroup_limits
    out=$(cat $record)
    holds "$who: memory is counted" '"memory":\{"limit":2147483648,"used":[1-9]'
    holds "$who: tasks are counted" '"tasks":\{"limit":256,"used":[1-9]'
    check "$who: the doctor knows" "$@" anet doctor --json
    holds "$who: LIM-2: full" '"limits":"full"'
    # Removed by systemd when the last process is gone, which it may hear a moment later.
    for _ in $(seq 100); do
        out=$(find /sys/fs/cgroup -name 'anet-*'; systemctl list-units --all --plain --no-legend 'anet-*')
        if [ -z "$out" ]; then break; fi
        sleep 0.1
    done
    if [ -z "$out" ]; then good "$who: no unit and no group stays"; else bad "$who: something stays"; fi
    no_record
}

usual root
limited root

usual user as_user
check 'user without manager: everything else works' as_user anet run --untrusted --record $record -- true
holds 'user without manager: LIM-2: the warning' '^anet: warning: no_cgroup_limits: '
out=$(cat $record)
holds 'user without manager: and in the record' '"warnings":\["no_cgroup_limits"\]'
lacks 'user without manager: no limit is promised that does not hold' '"memory"'
no_record
check 'user without manager: the doctor runs' as_user anet doctor --json
holds 'user without manager: and calls the limits partial' '"limits":"partial"'

if command -v git >/dev/null; then
    as_user mkdir /home/tester/project && cd /home/tester/project
    check 'git in --here' as_user anet run --here -- sh -c 'git init -q . && echo x > f && git add . &&
        git -c user.name=a -c user.email=a@example.com commit -qm x && mkdir d && git mv f d/ && git status --short'
    holds 'git moves a file between directories' '^R  f -> d/f$'
    cd /vmtest
fi

# An ordinary login: the session's scope belongs to the system's manager, the run's to the user's.
check 'login session: limits hold' systemd-run --quiet --pipe --wait -p PAMName=login -p User=tester \
    anet run --limit tasks=16 -- cat /proc/self/cgroup
lacks 'login session: no warning' no_cgroup_limits
start_user_manager
limited 'user' as_user_with_manager
check 'the managers are well' test "$(systemctl is-system-running)" = running
check "the user's too" as_user_with_manager systemctl --user is-system-running
finish
