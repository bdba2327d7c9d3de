# `idlewise record --histogram` on real cpuidle: the programs pass this kernel's verifier, and count what sysfs counts.
# One state is left to each CPU, so that the states are known however busy the host is: C1 to CPU 0, C6 to CPU 1.
. /machine/tap
usage() { cat $cpus/cpu1/cpuidle/state$1/usage; }
cd /tmp
# others VALUE: to the other states' `disable`
others() { for state in cpu0/cpuidle/state0 cpu0/cpuidle/state2 cpu1/cpuidle/state0 cpu1/cpuidle/state1; do echo $1 > $cpus/$state/disable; done; }
others 1
before=$(( $(usage 0) + $(usage 1) + $(usage 2) ))
idlewise record --histogram -o h.json -- sleeps 5 2000 100 5000 > /tmp/out 2>&1
status=$?
after=$(( $(usage 0) + $(usage 1) + $(usage 2) ))
others 0
sed 's/^/# /' /tmp/out
check "histogram: is recorded" [ $status = 0 ]
idlewise info h.json --csv > h.csv
sed 's/^/# /' h.csv
counted=$(awk -F, '$1 == 1 { sum += $3 } END { print sum + 0 }' h.csv)
say "sysfs counted $((after - before)) stays of CPU 1, the programs $counted"
check "histogram: has stays" [ "$counted" -gt 100 ]
check "histogram: no more than sysfs counted" [ "$counted" -le $((after - before)) ]
states() { awk -F, -v cpu="$1" '$1 == cpu && $3 > 0 { print $2 }' h.csv; }
check "histogram: the stays of CPU 1 are in C6" [ "$(states 1)" = C6 ]
check "histogram: those of CPU 0 are in no other state than C1" [ -z "$(states 0 | grep -v C1)" ]
check "histogram: advise reads it" sh -c 'idlewise advise h.json > /dev/null'
