# `idlewise doctor` on real kernels: what it says works does, what it says does not doesn't, and the line that it gives mends it.
. /machine/tap
# mend ID: does what the row says, as root
mend() { line=$(doctor_row mend "$1"); say "$1: $line"; case "$line" in sudo*|mount*) eval "${line#sudo }" ;; *) return 1 ;; esac; }
records() { does idlewise record -d 1 --force -o /tmp/doctor.dat; }
sets() { does idlewise set apply --set C6=off && does idlewise set revert; }
judges() { does idlewise why -d 1; }
state_of_machine() { cat /proc/modules /proc/mounts $cpus/cpu*/cpuidle/state*/disable $cpus/cpuidle/current_governor; ls /run; }

check "doctor: counts are there" says counts yes
check "doctor: and why has something to say" judges
check "doctor: a recording is possible" says record yes
check "doctor: and record makes one" records
check "doctor: states can be turned off" says states yes
check "doctor: and set turns one off" sets
state_of_machine > /tmp/before
doctor && as_nobody idlewise doctor > /tmp/nobody
check "doctor: an ordinary user is told what root may" grep -q 'sudo idlewise record' /tmp/nobody
state_of_machine > /tmp/after
check "doctor: nothing changed" cmp /tmp/before /tmp/after

# With debugfs mounted, a look into its folder `tracing` would mount tracefs there.
umount /sys/kernel/tracing
state_of_machine > /tmp/before
doctor
state_of_machine > /tmp/after
check "doctor: nothing is mounted by a look" cmp /tmp/before /tmp/after
check "doctor: no tracefs is told" says record no
umount /sys/kernel/debug

check "doctor: without debugfs too" says record no
check "doctor: and record fails then" eval '! records'
check "doctor: its line can be run" mend record
check "doctor: it mends that" says record yes
check "doctor: for record too" records

mount -o remount,ro /sys
check "doctor: a read-only sysfs is told" says states no
check "doctor: and set fails then" eval '! sets'
check "doctor: its line can be run there" mend states
check "doctor: it mends that too" says states yes
check "doctor: for set too" sets
mount -o remount,rw /sys

rmmod idlewise_idle
check "doctor: no driver is told" says counts no
check "doctor: and why fails then" eval '! judges'
