# `idlewise why` and `idlewise advise` on real cpuidle: the kernel's own counts, CPUs and drivers that go away, and
# advice on a recording of this machine, which `idlewise set` takes.
. /machine/tap
usage() { cat $cpus/cpu$1/cpuidle/state$2/usage; }
# field NAME FILE: the first number of that name in a JSON file
field() { sed -n "s/.*\"$1\": \([0-9.]*\),*$/\1/p" "$2" | head -n 1; }
# row STATE FILE NAME: a number of the row of a state
row() { awk -v state="\"$1\"" -v name="\"$3\":" '$1 == "\"state\":" { on = index($2, state) } on && $1 == name { sub(",", "", $2); print $2; exit }' "$2"; }
# refused WORDS COMMAND...: status 2, and a last line with WORDS
refused() {
    words=$1
    shift
    said=$("$@" 2>&1)
    status=$?
    case "$said" in *"$words"*) [ $status = 2 ] && return 0 ;; esac
    say "$status: $said"
    return 1
}

# watch WORDS...: why runs in the background ($!) and has read its first counts. The shell may look into the file before its
# child has emptied it, so what an earlier run said must be gone.
watch() {
    rm -f /tmp/why.err
    idlewise why -d 600 "$@" > /tmp/why.out 2> /tmp/why.err &
    in_time 'grep -qs watching /tmp/why.err'
}

check "why: an ordinary user gets an answer" eval 'as_nobody idlewise why -d 1 > /tmp/said; grep -q "driver idlewise" /tmp/said'

# The kernel's counts around it bound what it says.
sleeps 1000 500 10 5000 &
load=$!
before=$(usage 1 2)
idlewise why -d 3 --cpus 1 --json > /tmp/why.json 2> /tmp/why.err
after=$(usage 1 2)
stays=$(awk -v rate="$(row C6 /tmp/why.json stays_per_s)" -v ns="$(field elapsed_ns /tmp/why.json)" 'BEGIN { printf "%d", rate * ns / 1e9 + 0.5 }')
check "why: it counts what the kernel counts" [ "$stays" -gt 0 -a "$stays" -le $((after - before)) ]
check "why: misses too" [ "$(row C6 /tmp/why.json too_deep_ratio)" != null ]
# A row's fields are in alphabetical order.
latency_ns=$(awk '$1 == "\"exit_latency_ns\":" { ns = $2 } $1 == "\"state\":" && index($2, "\"C6\"") && ns { sub(",", "", ns); print ns; exit }' /tmp/why.json)
say "why: $stays of $((after - before)) stays in C6, $latency_ns ns each"
check "why: with the driver's exit latency" [ "$latency_ns" = "$(cat $cpus/cpu1/cpuidle/state2/latency)000" ]
kill $load

watch --json
echo 0 > $cpus/cpu1/online
sleep 1
kill -INT $!
wait $!
echo 1 > $cpus/cpu1/online
check "why: a CPU that goes offline is named" grep -q "went offline in the meantime" /tmp/why.out
check "why: ctrl-c ends early" grep -q '"ended_early": true' /tmp/why.out

# advise: a recording of this machine, judged; the change is one that `settings` takes.
sleeps 1000 500 10 5000 &
load=$!
TMPDIR=/tmp/own && mkdir $TMPDIR && export TMPDIR
idlewise advise -d 3 --json > /tmp/advise.json 2> /tmp/advise.err
check "advise: judges this machine" grep -q '"outcome": "' /tmp/advise.json
check "advise: tries limits, a governor and states" eval 'grep -q "latency=2us@" /tmp/advise.json && grep -q "governor=" /tmp/advise.json && grep -q "C6=off" /tmp/advise.json'
check "advise: leaves no recording behind" [ -z "$(ls $TMPDIR)" ]
# A busy host disturbs a short recording, and the verdict is then rightly that nothing is sure.
for seconds in 3 10 30; do
    rm -f /tmp/advice
    idlewise advise -d $seconds --slo p99=50us --emit dropin -o /tmp/advice > /tmp/advise.txt 2>&1
    grep -q '^latency=2us@' /tmp/advice && break
done
kill $load
say "$(grep -A2 '^Recommended\|^Leave\|^Nothing' /tmp/advise.txt | tr '\n' ' ')"
check "advise: recommends a limit for a limit" grep -q '^latency=2us@' /tmp/advice
check "advise: settings takes the file" silent idlewise set apply /tmp/advice
check "advise: and the kernel has it" [ "$(cat $cpus/cpu1/power/pm_qos_resume_latency_us)" = 2 ]
check "advise: settings gives it back" silent idlewise set revert
check "advise: an ordinary user needs root" eval 'as_nobody TMPDIR=/tmp idlewise advise -d 1 > /tmp/said; [ "$(wc -l < /tmp/said)" = 1 ]'

# Without a driver there is nothing to count.
watch
rmmod idlewise_idle
sleep 1
kill -INT $!
wait $!
status=$?
check "why: a driver that goes away is an error in a line" eval '[ $status = 2 -a "$(grep -c "no CPU can be judged" /tmp/why.err)" = 1 ] || { say "$status: $(tail -n 1 /tmp/why.err)"; false; }'
check "why: without a driver it says so" refused "no idle driver is active here" idlewise why
