# The way of docs/first-steps.md on real cpuidle, from a recording to a setting that a benchmark has judged: Sapphire
# Rapids' table with exits that really take so long, and a server of requests, for which menu pays C6's exit.
. /machine/tap
# Once is enough: what differs between kernels has scripts of its own.
case $(uname -r) in 6.1.*) exit 0 ;; esac
cd /tmp
rmmod idlewise_idle
insmod /modules/test/idlewise_idle.ko states=POLL,C1:1/1,C1E@hlt:2/4,C6@hlt:290/800 real_exits=1
values() { cat $cpus/cpu*/cpuidle/state*/disable $cpus/cpu*/power/pm_qos_resume_latency_us; }
first=$(values)
# step NAME COMMAND...: runs it, shows what it prints, and fails if it fails. Where it has to print `wanted`, it has three
# attempts: it measures, and the host may be busy with something else for a while.
wanted=
step() {
    name=$1
    shift
    say "\$ $*"
    for _ in 1 2 3; do
        "$@" > /tmp/said 2>&1
        status=$?
        if [ -z "$wanted" ] || grep -q "$wanted" /tmp/said; then break; fi
    done
    sed 's/^/# /' /tmp/said
    check "first steps: $name" [ $status = 0 ]
}

work requests 600000 > /dev/null &
load=$!
step "why finds it" idlewise why -d 3
check "first steps: why names C6" grep -q C6 /tmp/said
step "record" idlewise record -d 5 --force
step "info" idlewise info trace.dat
step "replay on the recorded states" idlewise replay trace.dat
check "first steps: replay names the recorded machine" grep -q 'recorded machine' /tmp/said
step "advise" idlewise advise trace.dat --slo p99=100us
setting=$(idlewise advise trace.dat --slo p99=100us --json 2> /dev/null | sed -n 's/^ *"setting": "\(.*\)",*$/\1/p' | tail -n 1)
check "first steps: advise recommends a setting" [ -n "$setting" ]
pkill -P $load 2> /dev/null
kill $load
wait $load 2> /dev/null
: "${setting:=latency=10us}"
wanted=above
step "try" idlewise try --set "$setting" --metric '^([0-9]+) ' --higher-is-better --settle 0 -- work requests 250
check "first steps: try finds that it helps" grep -q "$wanted" /tmp/said
wanted=
check "first steps: try gives everything back" [ "$(values)" = "$first" ]
step "set apply" idlewise set apply --set "$setting"
check "first steps: it is in force" [ "$(values)" != "$first" ]
step "set status" idlewise set status
step "set revert" idlewise set revert
check "first steps: everything is as it was" [ "$(values)" = "$first" ]
