#!/bin/sh
# Runs systemd as the first process of namespaces, on a copy of this machine's files
# that goes with them, with this folder's unit and no other: boot.sh DIR, which has
# the programs and files that are installed, and gets the log.
set -e
d=$1
mount --make-rprivate /
mkdir "$d/t"
mount -t tmpfs tmpfs "$d/t"
mkdir "$d/t/upper" "$d/t/work" "$d/t/root"
mount -t overlay -o "lowerdir=/,upperdir=$d/t/upper,workdir=$d/t/work" overlay "$d/t/root"
r=$d/t/root
mount -t proc proc "$r/proc"
mount -t sysfs sysfs "$r/sys"
mount -t tmpfs tmpfs "$r/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"
mount -t tmpfs tmpfs "$r/dev"
for f in null zero full random urandom tty; do
	touch "$r/dev/$f"
	mount --bind "/dev/$f" "$r/dev/$f"
done
ln -s /proc/self/fd "$r/dev/fd"
mkdir "$r/dev/shm" "$r/dev/pts"
for f in tmp var/lib var/log etc/systemd; do mount -t tmpfs tmpfs "$r/$f"; done
mount -t tmpfs -o mode=755 tmpfs "$r/run" # as everywhere: programs believe what only root can put there
# What this machine does when it boots is not to be done again.
units=$r/usr/lib/systemd/system
for f in "$units" "$units-generators" "$r/usr/lib/environment.d"; do
	[ ! -d "$f" ] || mount -t tmpfs tmpfs "$f"
done
: >"$r/etc/fstab"
for f in sysinit basic shutdown network-online nss-user-lookup; do
	printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $f >"$units/$f.target"
done
printf '[Unit]\nDescription=test\nDefaultDependencies=no\nWants=test.service\n' >"$units/test.target"
printf '[Unit]\nDescription=test\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sh /out/script\nStandardOutput=file:/out/log\nStandardError=file:/out/log\n' >"$units/test.service"
cp "$d/vmmcd.service" "$units/"
cp "$d/vmmcd" "$d/vmmc" "$r/usr/bin/"
mkdir -p "$r/usr/lib/sysusers.d" "$r/usr/lib/tmpfiles.d" "$r/out"
cp "$d/vmmc.sysusers" "$r/usr/lib/sysusers.d/vmmc-test.conf"
cp "$d/vmmc.tmpfiles" "$r/usr/lib/tmpfiles.d/vmmc-test.conf"
systemd-sysusers --root="$r" vmmc-test.conf
systemd-tmpfiles --root="$r" --create vmmc-test.conf
mkdir "$d/out"
cp "$d/script" "$d/out/"
mount --bind "$d/out" "$r/out"
cd "$r"
mkdir old-root
pivot_root . old-root
umount -l old-root
for systemd in /usr/lib/systemd/systemd /lib/systemd/systemd; do
	[ ! -x $systemd ] || exec env -i container=test PATH="$PATH" $systemd --system --unit=test.target --log-target=console --show-status=0
done
echo there is no systemd
