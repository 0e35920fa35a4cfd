# SBX-5 on a usual host, and on one where the launcher has no namespaces of its own, as on Ubuntu.
cd /vmtest && . guest/check.sh
everybody='anet anet-supervisor anet-launcher anet-proxy bwrap anet-init'

start_user_manager
status 1 'the search finds what lives' python3 guest/kill.py own nothing running
holds 'the run among it' '^left: [0-9]+ sleep$'
for mode in own without; do
    check "$mode: a run" python3 guest/start.py $mode anet run --record /tmp/record-$mode -- true
done
out=$(cat /tmp/record-own)
lacks 'own: nothing to warn of' launcher_not_apart
out=$(cat /tmp/record-without)
holds 'without: the record says that the launcher is not apart' '"warnings":\["launcher_not_apart"\]'
check 'without: limits hold' python3 guest/start.py without anet run --limit tasks=4 --limit memory=64MiB -- \
    sh -c 'grep -c . /proc/self/cgroup'
lacks 'without: and nothing warns of them' no_cgroup_limits
check 'without: a file moves between directories' python3 guest/start.py without anet run -- sh -c \
    'mkdir a b; echo x > a/f; mv a/f b/f && cat b/f'
status 123 'without: memory ends the run' python3 guest/start.py without anet run --limit memory=64MiB -- \
    python3 -c 'b = bytearray(300 * 1024 * 1024)'
check 'without: the doctor is content' python3 guest/start.py without anet doctor

for mode in own without; do
    for process in $everybody; do
        check "$mode: kill $process" python3 guest/kill.py $mode $process running
    done
    for stopped in anet anet-supervisor anet-launcher anet-proxy bwrap; do
        for process in $everybody; do
            if [ $process = $stopped ]; then continue; fi
            check "$mode: stop $stopped, kill $process" python3 guest/kill.py $mode $process running $stopped
        done
    done
    for when in $(seq 30 90 930); do
        for process in anet anet-launcher bwrap; do
            check "$mode: kill $process after $when ms" python3 guest/kill.py $mode $process $when
        done
    done
done
finish
