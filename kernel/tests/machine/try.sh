# `idlewise try` on real cpuidle: two threads on two CPUs, with C6 off and on; and what it leaves behind.
. /machine/tap
values() { cat $cpus/cpu*/cpuidle/state*/disable $cpus/cpuidle/current_governor; }
first=$(values)
# What depends on the setting alone, so that a busy host cannot change the verdict: 3 % more work with C6 off.
cat > /tmp/planted <<'END'
#!/bin/sh
read off < /sys/devices/system/cpu/cpu0/cpuidle/state2/disable
read n < /tmp/noise
n=$(( (n * 1103515245 + 12345) % 2147483648 ))
echo $n > /tmp/noise
echo "result: $(( 10000 + n / 65536 % 401 - 200 + off * 300 )) ops"
END
chmod +x /tmp/planted
echo 1 > /tmp/noise
idlewise try --set C6=off --metric 'result: (.*) ops' --seed 1 --settle 0 -- /tmp/planted > /tmp/out 2>&1
status=$?
sed 's/^/# /' /tmp/out
check "try: decided" [ $status = 0 ]
check "try: finds the planted 3 %" grep -q "above A's (95 % interval +" /tmp/out
check "try: gives back every value" [ "$(values)" = "$first" ]
check "try: and leaves nothing in the journal" sh -c '! grep -qs C6=off /run/idlewise/journal.json'
idlewise try --set C6=off -- sleep 1000 > /dev/null 2>&1 &
# Until there is one to kill.
check "try: starts the command" in_time 'killall sleep 2> /dev/null'
wait $!
check "try: a command that is killed is an error" [ $? = 2 ]
check "try: and leaves nothing" [ "$(values)" = "$first" ]
