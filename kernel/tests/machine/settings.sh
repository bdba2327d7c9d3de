# `idlewise set` and `idlewise set quiet` on real sysfs: what the kernel makes of them, everything that is missing or
# in the way, and SIGKILL at many system calls.
. /machine/tap
governor=$cpus/cpuidle/current_governor
limit() { cat $cpus/cpu$1/power/pm_qos_resume_latency_us; }
# The whole machine's limit in microseconds, as the kernel has it.
machine_limit() { hexdump -n 4 -e '1/4 "%u"' /dev/cpu_dma_latency; }
in_sysfs() { cat $governor $cpus/cpu*/cpuidle/state*/disable $cpus/cpu*/power/pm_qos_resume_latency_us; }
values() { in_sysfs; machine_limit; }
usage() { cat $cpus/cpu$1/cpuidle/state$2/usage; }
# refused WORDS ARGUMENTS...: status 2, a line with WORDS, and nothing is changed
refused() {
    words=$1
    shift
    before=$(values 2>/dev/null)
    said=$(idlewise set "$@" 2>&1 > /dev/null)
    status=$?
    [ $status = 2 ] && [ "$(echo "$said" | wc -l)" = 1 ] && [ "$(values 2>/dev/null)" = "$before" ] || { say "$status: $said"; return 1; }
    case "$said" in *"$words"*) ;; *) say "$said"; return 1 ;; esac
}
all="--set governor=ladder --set C6=off --set latency=9us@1 --set latency=50us"
first=$(values)
first_in_sysfs=$(in_sysfs)
other=$(cat $governor)
[ "$other" = ladder ] && all="--set governor=menu --set C6=off --set latency=9us@1 --set latency=50us"

check "settings: applies all" silent idlewise set apply $all
check "settings: the kernel has the values" [ "$(cat $cpus/cpu0/cpuidle/state2/disable)$(limit 1)$(machine_limit)" = 1950 ]
check "settings: the governor is another" [ "$(cat $governor)" != "$other" ]
before=$(usage 0 2)
sleeps 1 500 10 5000
check "settings: a state that is off is not entered" [ "$(usage 0 2)" = "$before" ]
check "settings: status names the holder" sh -c "idlewise set status | grep -q 'idlewise (process'"
check "settings: revert succeeds" silent idlewise set revert
check "settings: and gives back every value" [ "$(values)" = "$first" ]

idlewise set apply --set latency=0us@1 > /dev/null 2>&1
check "settings: a limit of 0 is n/a for the kernel" [ "$(limit 1)" = n/a ]
before=$(usage 1 1)$(usage 1 2)
sleeps 2 500 10 5000
check "settings: and only POLL is entered then" [ "$(usage 1 1)$(usage 1 2)" = "$before" ]
idlewise set revert > /dev/null

check "settings: with an end in time" silent idlewise set apply --set C6=off --expires 1s
check "settings: the holder gives back" in_time '[ "$(values)" = "$first" ]'

# quiet
idlewise set quiet --cpus 1 --look 0 -- sh -c "cat $cpus/cpu1/power/pm_qos_resume_latency_us; exit 7" > /tmp/limit 2> /dev/null
check "quiet: the status is the command's" [ $? = 7 ]
check "quiet: the limit was in force" [ "$(cat /tmp/limit)" = 10 ]
check "quiet: and is given back" [ "$(values)" = "$first" ]
idlewise set quiet --look 0 -- /nonexistent 2> /dev/null
check "quiet: no such command" [ $? = 127 ]
idlewise set quiet --cpus 1 --look 0 -- sleep 1000 2> /dev/null &
in_time '[ "$(limit 1)" = 10 ] && grep -q "is_complete.: true" /run/idlewise/journal.json'
kill -9 $!
check "quiet: killed, its holder gives back" in_time '[ "$(values)" = "$first" ]'
killall sleep

# measure forces states by the same journal
# measuring: starts a long measurement, and waits until it forces a state
measuring() {
    idlewise measure states --source 0 --target 1 --busy --count 1000000 > /tmp/said 2>&1 &
    measurer=$!
    in_time '[ "$(values)" != "$first" ] && grep -q "is_complete.: true" /run/idlewise/journal.json'
}
measuring
check "measure states: settings status shows what it forces" eval 'idlewise set status | grep -q "=only@1"'
check "measure states: settings apply waits for its end" eval 'idlewise set apply --set C6=off 2>&1 | grep -q "or measuring"'
kill -9 $measurer
check "measure states: killed (SIGKILL), the holder gives everything back" in_time '[ "$(values)" = "$first" ]'
# frozen: stops the measurement and its holder while a state is forced in sysfs, so that neither can give it back. Between
# two states there is none. The holder has no name at first.
frozen() {
    holder=$(ps -o pid,args | sed -n 's/^ *\([0-9]*\) .*set [h]old.*/\1/p')
    [ -n "$holder" ] || return 1
    kill -STOP $measurer $holder
    # What they are writing may still arrive.
    for pid in $measurer $holder; do
        while grep -q '^State:.[^TZ]' /proc/$pid/status 2> /dev/null; do usleep 1000; done
    done
    [ "$(in_sysfs)" != "$first_in_sysfs" ] && return
    kill -CONT $measurer $holder
    return 1
}
measuring
check "measure states: stopped while a state is forced" in_time frozen
kill -9 $holder $measurer
wait $measurer
check "measure states: killed with its holder, states stay forced" [ "$(values)" != "$first" ]
check "measure states: settings revert gives everything back" eval 'silent idlewise set revert && [ "$(values)" = "$first" ]'
measuring
idlewise set revert --all > /dev/null
wait $measurer
status=$?
check "measure states: settings revert --all ends it" eval '[ $status = 2 ] && [ "$(values)" = "$first" ]'
sed 's/^/# /' /tmp/said

# What is missing or in the way
echo 0 > $cpus/cpu1/online
check "settings: an offline CPU is named" refused "CPU 1 is not online (0 are)" apply --set C6=off@1
echo 1 > $cpus/cpu1/online
mount -o remount,ro /sys
check "settings: a read-only sysfs is told" refused "mounted read-only" apply --set C6=off
mount -o remount,rw /sys
mkdir -p /tmp/full && mount -t tmpfs -o size=8k none /tmp/full && mount --bind /tmp/full /run
dd if=/dev/zero of=/run/fill bs=4k count=2 2> /dev/null
check "settings: a full /run" refused "/run is full" apply --set C6=off
umount /run
# Settings that are in force can be given back even then.
idlewise set apply --set C6=off > /dev/null 2>&1
dd if=/dev/zero of=/run/fill bs=1M 2> /dev/null
check "settings: can be reverted with a full /run" silent idlewise set revert
rm /run/fill
check "settings: completely" [ "$(values)" = "$first" ]
check "settings: an ordinary user needs sudo" eval 'as_nobody idlewise set apply --set C6=off | grep -q "needs root"'
check "settings: and may see the status" eval 'as_nobody idlewise set status | grep -q "has set nothing"'

# A CPU that goes offline in between. Its driver's files go with it.
idlewise set apply --set C6=off --set latency=9us@1 > /dev/null 2>&1
echo 0 > $cpus/cpu1/online
idlewise set revert > /tmp/said 2>&1
check "settings: revert while a CPU is offline" [ $? = 0 ]
sed 's/^/# /' /tmp/said
echo 1 > $cpus/cpu1/online
check "settings: leaves nothing when it comes back" [ "$(values)" = "$first" ]

# Another driver, another governor
idlewise set apply --set C6=off > /dev/null 2>&1
rmmod idlewise_idle
check "settings: revert without the driver" silent idlewise set revert
check "settings: a machine without a driver" refused "no cpuidle driver" apply --set C6=off
insmod /modules/stock/idlewise_idle.ko states=C1@hlt:2/2 2> /dev/null &&
    check "settings: a single state" refused "a single idle state" apply --set C1=off
rmmod idlewise_idle 2> /dev/null
insmod /modules/stock/idlewise_idle.ko states=POLL,C1:2/2,C6@hlt:100/300
check "settings: a new driver begins anew" [ "$(values)" = "$first" ]
if insmod /modules/stock/idlewise_governor.ko 2> /dev/null; then
    ours=$(cat $cpus/cpuidle/available_governors | tr ' ' '\n' | grep idlewise)
    idlewise set apply --set governor=$ours > /dev/null 2>&1
    check "settings: a governor of a module" [ "$(cat $governor)" = "$ours" ]
    idlewise set revert > /dev/null
    check "settings: and back" [ "$(values)" = "$first" ]
    rmmod idlewise_governor
    check "settings: a governor that has gone" refused "no governor $ours" apply --set governor=$ours
    # One that goes while it is what is to be given back.
    insmod /modules/stock/idlewise_governor.ko && echo "$ours" > $governor
    idlewise set apply --set governor=$other > /dev/null 2>&1
    rmmod idlewise_governor
    idlewise set revert > /tmp/said 2>&1
    status=$?
    check "settings: a governor that cannot be given back is told" eval '[ $status = 1 ] && grep -q "does not take that value" /tmp/said'
    sed 's/^/# /' /tmp/said
    insmod /modules/stock/idlewise_governor.ko && idlewise set revert > /dev/null 2>&1
    check "settings: and is given back when it is there again" [ "$(cat $governor)" = "$ours" ]
    echo "$other" > $governor
    rmmod idlewise_governor
fi

# SIGKILL. The count of all points first.
mkdir -p /tmp/kill
swept=0
# sweep NAME PREPARE COMMAND...: kills COMMAND at every KILL_STEP-th point
sweep() {
    name=$1 prepare=$2
    shift 2
    $prepare > /dev/null 2>&1
    point_count=$(killer 0 "$@" 2> /dev/null | tail -n 1)
    idlewise set revert > /dev/null
    tried=0 bad=0 point=1
    while [ $point -le $point_count ]; do
        $prepare > /dev/null 2>&1
        killer $point "$@" > /dev/null 2>&1
        idlewise set revert > /tmp/said 2>&1 || { say "killed at $point: $(cat /tmp/said)"; bad=$((bad + 1)); }
        # A holder that no journal named yet ends by itself.
        in_time '[ "$(values)" = "$first" ]' || { say "killed at $point: $(values | tr '\n' ' ')"; bad=$((bad + 1)); }
        [ ! -e /run/idlewise/journal.json ] || { say "killed at $point: a journal is left"; bad=$((bad + 1)); }
        tried=$((tried + 1)) point=$((point + KILL_STEP))
    done
    swept=$((swept + tried))
    check "killed: $name at $tried of $point_count points, all given back" [ $bad = 0 ]
}
sweep "settings apply" true idlewise set apply $all
sweep "settings revert" "idlewise set apply $all" idlewise set revert
sweep "quiet" true idlewise set quiet --look 0 -- true
sweep "measure ipi" true idlewise measure ipi --by user-space --source 0 --target 1 --state C1,C6 --count 1 --gap-us 100
say "killed at $swept points"
check "no process is left" in_time '! ps | grep -q "[s]ettings hold"'
check "nothing is left in the end" [ "$(values)" = "$first" ]
