# `idlewise watch` on real sysfs: what the kernel counts, a CPU and a driver that go and come back while it watches, and
# the page for Prometheus.
. /machine/tap
has() { case "$(cat "$1")" in *"$2"*) ;; *) say "no $2 in $(head -c 400 "$1")"; return 1 ;; esac; }
usage() { cat $cpus/cpu$1/cpuidle/state$2/usage; }
# later COMMAND: runs it after a second, beside what follows
later() { (sleep 1; eval "$1") & }

(sleeps 0 100 10 5000) &
idlewise watch --once --json --interval 1 > /tmp/once 2> /tmp/said
check "watch: reads the driver's states" has /tmp/once '"state":"C6"'
check "watch: names driver and governor" has /tmp/once '"driver":"idlewise","governor":"'
check "watch: says nothing on the side" [ ! -s /tmp/said ]
check "watch: a CPU that slept has entries" grep -q '"entries_per_s":[1-9]' /tmp/once
wait
idlewise watch --once --interval 0.5 > /tmp/table
check "watch: prints a table" has /tmp/table 'time by state'
check "watch: no line is wider than 100" [ -z "$(grep -E '.{101}' /tmp/table)" ]

idlewise set apply --set latency=0us@1 > /dev/null 2>&1
idlewise watch --once --json --interval 0.2 > /tmp/limited
check "watch: shows a latency limit" has /tmp/limited '"latency_limit_ns":0'
check "watch: says who holds it" has /tmp/limited 'latency=0us@1'
idlewise set revert > /dev/null 2>&1

# A CPU goes and comes back.
later "echo 0 > $cpus/cpu1/online; sleep 2; echo 1 > $cpus/cpu1/online"
idlewise watch --json --count 12 --interval 0.5 > /tmp/hotplug 2> /tmp/said
wait
check "watch: goes on without a CPU" [ "$(wc -l < /tmp/hotplug)" = 12 ]
check "watch: shows that it is offline" grep -q '"cpus":"1"[^}]*"running_ratio":null' /tmp/hotplug
tail -n 1 /tmp/hotplug > /tmp/last
check "watch: and that it is back" sh -c "! grep -q '\"running_ratio\":null' /tmp/last"

# The driver goes and comes back.
later "rmmod idlewise_idle; sleep 2; insmod /modules/stock/idlewise_idle.ko states=POLL,C1:2/2"
idlewise watch --json --count 12 --interval 0.5 > /tmp/driver 2> /tmp/said
status=$?
wait
check "watch: goes on without a driver" [ "$status$(wc -l < /tmp/driver)" = 012 ]
check "watch: shows idle time then" has /tmp/driver '"driver":null'
tail -n 1 /tmp/driver > /tmp/last
check "watch: takes the new driver's states" has /tmp/last '"driver":"idlewise"'
check "watch: and no longer the old ones" sh -c "! grep -q C6 /tmp/last"

# The page for Prometheus.
idlewise watch --serve 127.0.0.1:9737 2> /tmp/said &
server=$!
check "watch --serve: listens" in_time 'grep -q 127.0.0.1:9737 /tmp/said'
before=$(usage 0 1)
wget -q -O /tmp/page http://127.0.0.1:9737/metrics
after=$(usage 0 1)
entries=$(sed -n 's/^idlewise_state_entries_total{cpu="0",[^}]*state="C1"} //p' /tmp/page)
check "watch --serve: has what the kernel counted" [ "$before" -le "${entries:--1}" ] && [ "$entries" -le "$after" ]
check "watch --serve: names the driver" has /tmp/page 'idlewise_cpuidle_info{driver="idlewise"'
refused=$(idlewise watch --serve 127.0.0.1:9737 2>&1)
check "watch --serve: a port in use is one line" [ "$?$(echo "$refused" | wc -l)" = 21 ]
kill $server
wait $server
check "watch --serve: ends by a signal" [ $? = 0 ]
