# `idlewise predict --check` on real cpuidle: one measured run of the predicted setting, and what it leaves behind.
. /machine/tap
values() { cat $cpus/cpu*/cpuidle/state*/disable $cpus/cpuidle/current_governor; }
first=$(values)
cd /tmp
cat > load <<'END'
#!/bin/sh
cat /sys/devices/system/cpu/cpu1/cpuidle/state2/disable > /tmp/is-off
cat /sys/devices/system/cpu/cpu1/cpuidle/state2/usage > /tmp/usage-before
sleeps 200 2000 5 10000
cat /sys/devices/system/cpu/cpu1/cpuidle/state2/usage > /tmp/usage-after
echo "what the command prints"
END
chmod +x load
# A recording from elsewhere, which reproduces itself however busy this host is. So the prediction is of another load.
run=/machine/periodic.parquet
idlewise predict $run --governor menu --disable C6 --check no-c6.dat -- ./load > out 2> err
status=$?
sed 's/^/# /' err out
check "predict: --check says within (0) or outside (1)" [ $status -le 1 ]
check "predict: and has measured figures" grep -qE '^median latency  us .* (within|outside)$' out
check "predict: the command ran without C6" [ "$(cat is-off)" = 1 ]
check "predict: and nothing entered C6 meanwhile" [ "$(cat usage-before)" = "$(cat usage-after)" ]
check "predict: what the command prints is not the answer" sh -c '! grep -q "what the command prints" out'
check "predict: it gives back every value" [ "$(values)" = "$first" ]
check "predict: and leaves nothing in the journal" sh -c '! grep -qs C6=off /run/idlewise/journal.json'
idlewise predict $run --governor menu --disable C6 --check no-c6.dat > again 2>&1
check "predict: the recording that it made says the same again" sh -c 'grep "^median" out > a; grep "^median" again > b; cmp a b'
check "predict: it does not replace a recording unasked" sh -c "! idlewise predict $run --governor menu --check no-c6.dat -- ./load 2> err; grep -q -- --force err"
# A command that fails, and one whose caller is killed.
idlewise predict $run --governor menu --disable C6 --check failed.dat -- false > /dev/null 2> err
check "predict: a command that fails is an error" [ $? = 2 ]
check "predict: and leaves nothing" [ "$(values)" = "$first" ]
idlewise predict $run --governor menu --disable C6 --check killed.dat -- sleep 1000 > /dev/null 2>&1 &
# It plays first, which takes a while. Killed before the command runs, it has no holder yet, and the next command restores.
for attempt in $(seq 20); do ! in_time 'pidof sleep > /dev/null' || break; done
check "predict: settings are changed while the command runs" [ "$(values)" != "$first" ]
kill -KILL $!
check "predict: and if it is killed, its holder gives back every value" in_time '[ "$(values)" = "$first" ]'
killall -q sleep
true
