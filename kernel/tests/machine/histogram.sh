# `idlewise record --histogram` on real cpuidle: the programs pass this kernel's verifier, and count what sysfs counts.
. /machine/tap
usage() { cat $cpus/cpu1/cpuidle/state$1/usage; }
cd /tmp
before=$(( $(usage 0) + $(usage 1) + $(usage 2) ))
idlewise record --histogram -o h.json -- sleeps 5 300 50 5000 > /tmp/out 2>&1
status=$?
after=$(( $(usage 0) + $(usage 1) + $(usage 2) ))
sed 's/^/# /' /tmp/out
check "histogram: is recorded" [ $status = 0 ]
idlewise info h.json --csv > h.csv
sed 's/^/# /' h.csv
counted=$(awk -F, '$1 == 1 { sum += $3 } END { print sum + 0 }' h.csv)
say "sysfs counted $((after - before)) stays of CPU 1, the programs $counted"
check "histogram: has stays" [ "$counted" -gt 100 ]
check "histogram: no more than sysfs counted" [ "$counted" -le $((after - before)) ]
check "histogram: C6 is in it" grep -q '^1,C6,' h.csv
check "histogram: advise reads it" sh -c 'idlewise advise h.json > /dev/null'
