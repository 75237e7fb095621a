#!/bin/sh
# What run.sh runs in the fresh system, with two versions of the package beside it. Stops at the first thing that is not
# as it should be, with the service's log.
set -eu
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /frmps-test

at_end() {
	status=$?
	[ $status -eq 0 ] || { echo "FAILED, status $status"; journalctl --no-pager -q -u 'frmps-server*' | tail -n 40; }
}
trap at_end EXIT
set -x

# Everything that is there but what systemd, apt and dpkg keep for themselves.
list() {
	find / -xdev \( -path /frmps-test -o -path /tmp -o -path /run -o -path /var/log -o -path /var/cache -o -path \
		/var/lib/apt -o -path /var/lib/dpkg -o -path /var/lib/systemd/catalog -o -path /root \) -prune -o -print | sort
}
install_deb() { apt-get install -y -q "$@" >apt.log 2>&1 || { cat apt.log && false; }; }
property() { systemctl show -p "$1" --value "$2"; }
# Programs of an ordinary user.
go() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
two_steps() { printf 'go\ngo\n' | go frmps-run "$@" ./stepper /frmps-test/host_kernels.so; }
both_ok=$(printf 'ok\nok')

apt-get update -q >apt.log 2>&1 || cat apt.log
list >before
install_deb ./first.deb
frmps-server --help >/dev/null
dpkg-query -W -f '${Version}' frmps | grep -q "^$(frmps-server --version | sed 's/.* //')+"
systemd-analyze verify frmps-server.service frmps-server@0.service

# There is no GPU here: the service was started, has said so, and was left alone.
until [ "$(property ActiveState frmps-server)" = failed ]; do sleep 0.1; done
[ "$(property ExecMainStatus frmps-server)" = 69 ]
[ "$(property NRestarts frmps-server)" = 0 ]
[ "$(systemctl is-enabled frmps-server)" = enabled ]
[ "$(systemctl is-enabled frmps-exporter)" = disabled ]

printf 'backend = /frmps-test/host_backend.so\nstop_seconds = 1\n' >>/etc/frmps/frmps.conf
systemctl start frmps-server
[ "$(two_steps)" = "$both_ok" ]

# A program that runs while the package is upgraded does not notice, and the service is the same. That one needs nothing
# of its files: it replaces an executor. A program that starts now has the new library and is served as well.
mkfifo orders
go frmps-run ./stepper /frmps-test/host_kernels.so <orders >answers &
program=$!
exec 3>orders
answered() { # answered COUNT: waits for so many answers and prints the last
	until [ "$(wc -l <answers)" -ge "$1" ]; do
		kill -0 $program 2>/dev/null || break
		sleep 0.1
	done
	tail -n 1 answers
}
echo go >&3
[ "$(answered 1)" = ok ]
service=$(property MainPID frmps-server)
install_deb ./second.deb
[ "$(property MainPID frmps-server)" = "$service" ]
grep -q '^backend = /frmps-test/host_backend.so$' /etc/frmps/frmps.conf
echo go >&3
[ "$(answered 2)" = ok ]
for executor in $(frmpsctl status | sed -n 's/^ *executor \([0-9]*\) *active .*/\1/p'); do kill -KILL "$executor"; done
echo go >&3
[ "$(answered 3)" = ok ]
until frmpsctl status | grep -q 'standby *warm'; do sleep 0.1; done
[ "$(two_steps)" = "$both_ok" ]

# The configuration can be read again while the program runs. A wrong one is refused, and the service goes on.
systemctl reload frmps-server
echo 'memory_limit = much' >>/etc/frmps/frmps.conf
[ "$(systemctl reload frmps-server 2>&1 | wc -l)" -gt 0 ]
sed -i '/^memory_limit/d' /etc/frmps/frmps.conf
[ "$(property MainPID frmps-server)" = "$service" ]
echo go >&3
[ "$(answered 4)" = ok ]

# A restart ends programs that have not ended within stop_seconds: they get an error. Later ones are served.
systemctl restart frmps-server
[ "$(property MainPID frmps-server)" != "$service" ]
echo go >&3
[ "$(answered 5)" = CUDA_ERROR_MPS_CLIENT_TERMINATED ]
exec 3>&-
wait $program || [ $? = 1 ]
[ "$(two_steps)" = "$both_ok" ]

# The exporter is started by who wants it.
systemctl start frmps-exporter
until bash -c 'exec 3<>/dev/tcp/127.0.0.1/9836 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && cat <&3' 2>/dev/null |
	grep -q '^frmps_up 1'; do
	[ "$(property ActiveState frmps-exporter)" = active ]
	sleep 0.1
done

# Code of programs runs in the service's control group, and the manager does not listen to it.
service=$(property MainPID frmps-server)
for group in $(find /sys/fs/cgroup/ -path "*$(property ControlGroup frmps-server)/cgroup.procs"); do
	# shellcheck disable=SC2016
	sh -c 'echo 0 >"$0"; exec setpriv --reuid 65534 --regid 65534 --clear-groups env NOTIFY_SOCKET=/run/systemd/notify systemd-notify WATCHDOG=trigger' "$group"
done
[ "$(property MainPID frmps-server)" = "$service" ]
[ "$(property ActiveState frmps-server)" = active ]

# An instance for one GPU is a service of its own.
systemctl enable --now frmps-server@0
[ "$(two_steps --socket /run/frmps-0/frmps.sock)" = "$both_ok" ]
systemctl stop frmps-server
[ "$(two_steps --socket /run/frmps-0/frmps.sock)" = "$both_ok" ]
systemctl start frmps-server
[ "$(two_steps)" = "$both_ok" ]

# Nothing of the package runs without it, and nothing is left of it. The configuration is left until it is purged.
apt-get remove -y -q frmps
[ -z "$(systemctl list-units --no-legend --state=active 'frmps*')" ]
[ ! -e /run/frmps ] && [ ! -e /run/frmps-0 ]
grep -q '^backend = /frmps-test/host_backend.so$' /etc/frmps/frmps.conf
apt-get purge -y -q --autoremove frmps
list >after
diff before after
