package users

import (
	"strings"
	"testing"
)

// The system's daemon is for all users, whatever umask it was started with.
func TestUmaskOfTheSystemsDaemon(t *testing.T) {
	out := run(t, `
umask 077
vmmcd --name system --state /var/lib/vmmc/system 2>/dev/null &
await test -S /run/vmmc/node.sock
join $VICTIM
mkdir /mnt/base; chown 1:1 /mnt/base; chmod 755 /mnt/base
vmmc session add --user "$(id -nu 1)" --share /mnt/base --out /out s
vmmc run s sh -c umask
echo "directory: $(stat -c %a /run/vmmc)"
echo "state: $(stat -c '%a' /var/lib/vmmc/system /var/lib/vmmc/system/run /var/lib/vmmc/system/sessions | tr '\n' ' ')"
echo "output: $(stat -c %a /mnt/base/out)"
vmmc session del s`)
	says(t, out, `^joined system`, `^0022$`, `^directory: 755$`, `^state: 711 711 700 $`, `^output: 750$`)
}

// What packaging installs: a daemon of an account of its own in the system's run
// directory. Any user finds it without a variable, and an own daemon comes first.
func TestUsersFindTheSystemsDaemon(t *testing.T) {
	out := run(t, `
mkdir -m 755 /run/vmmc; chown $DAEMON:$DAEMON /run/vmmc
mkdir -m 711 /var/lib/vmmc; chown $DAEMON:$DAEMON /var/lib/vmmc
VMMC_ROOT=/var/lib/vmmc VMMC_SOCKET=/run/vmmc/node.sock as $DAEMON vmmcd --name system 2>/dev/null &
await test -S /run/vmmc/node.sock
chmod 666 /run/vmmc/node.sock # with the capabilities of the unit it has that mode
join $VICTIM
as $VICTIM vmmc node ls | tail -n 1
join 0
if vmmc doctor --name system --root /var/lib/vmmc --socket /run/vmmc/node.sock >/tmp/doctor; then echo clean; else cat /tmp/doctor; fi
if vmmc doctor --name system >/tmp/doctor; then echo clean; else cat /tmp/doctor; fi
as $VICTIM vmmcd --name mine 2>/dev/null & own=$!
await test -S /tmp/vmmc-$VICTIM/node.sock
join $VICTIM
join $OTHER
kill -KILL $(pgrep -u $VICTIM vmmcd) # its socket stays
wait $own || true
test -S /tmp/vmmc-$VICTIM/node.sock
join $VICTIM`)
	says(t, out, `^joined system`, `^system `, `^joined system`, `^clean`, `^clean`, `^joined mine`, `^joined system`, `^joined system`)
}

// A key as packaging/README.md has it is root's, and its group is the daemon's alone.
func TestKeyOfTheSystemsDaemon(t *testing.T) {
	out := run(t, `
sed /^vmmc:/d /etc/passwd >/run/passwd
echo "vmmc:x:$DAEMON:$DAEMON:VMMC node daemon:/var/lib/vmmc:/usr/sbin/nologin" >>/run/passwd
sed /^vmmc:/d /etc/group >/run/group
mount --bind /run/passwd /etc/passwd; mount --bind /run/group /etc/group
members() { sed /^vmmc:/d /etc/group >/run/group.new; echo "vmmc:x:$DAEMON:$1" >>/run/group.new; cat /run/group.new >/run/group; }
mkdir -m 755 /run/vmmc; chown vmmc:$DAEMON /run/vmmc
mkdir -m 711 /var/lib/vmmc; chown vmmc:$DAEMON /var/lib/vmmc
vmmc cert init --dir /mnt/ca --cluster lab
vmmc cert node --dir /mnt/ca --out /mnt system
mv /mnt/system /var/lib/vmmc/certs; chown -R root:$DAEMON /var/lib/vmmc/certs; chmod 750 /var/lib/vmmc/certs
key=/var/lib/vmmc/certs/key.pem
look() {
	chmod $2 $key; chown $3 $key; members "$4"
	if vmmc doctor --name system --root /var/lib/vmmc --certs /var/lib/vmmc/certs --socket /run/vmmc/node.sock >/tmp/doctor; then s=clean; else s=failed; fi
	echo "$1: $s: $(grep ' keys: ' /tmp/doctor)"
}
look "by the book" 640 root:$DAEMON ""
look "listed itself" 640 root:$DAEMON vmmc,root
look "another member" 640 root:$DAEMON vmmc,nobody
look "another group" 640 root:1 ""
look "written by the group" 660 root:$DAEMON ""
look "read by all" 644 root:$DAEMON ""
look "the daemon's" 600 vmmc:$DAEMON ""
look "the daemon's and a group's" 640 vmmc:$DAEMON ""`)
	says(
		t, out, `^by the book: clean: ok .* root's, and its group is the daemon's alone$`, `^listed itself: clean: ok`,
		`^another member: failed: failed .* its group vmmc also has nobody,`, `^another group: failed: failed .* group daemon also has daemon`,
		`^written by the group: failed: .* 0660`, `^read by all: failed: .* 0644`,
		`^the daemon's: clean: ok .* is its owner's alone$`, `^the daemon's and a group's: failed: .* 0640`,
	)
}

// Link-local addresses have a zone, and are dialled with it.
func TestLinkLocalAddresses(t *testing.T) {
	out := run(t, `
cat >/tmp/net <<'END'
ip link set lo up
ip addr add fe80::a/64 dev lo nodad
vmmc cert init --dir /tmp/ca --cluster lab
vmmc cert node --dir /tmp/ca --out /tmp/ids n1 n2
printf '%s\n' 'n1 [fe80::a%lo]:7411' 'n2 [fe80::a%lo]:7412' >/tmp/hosts
for n in n1 n2; do
	vmmcd --certs /tmp/ids/$n --hosts /tmp/hosts --socket /tmp/$n.sock --state /tmp/$n.state 2>/tmp/$n.log &
done
n=0; until vmmc node ls --socket /tmp/n1.sock >/tmp/said 2>&1; do n=$((n+1)); [ $n -lt 100 ] || break; sleep 0.1; done
cat /tmp/said
vmmc node ls --remote '[fe80::a%lo]:7412' --node N2 --certs /tmp/ids/n1
END
unshare --net sh /tmp/net || cat /tmp/n1.log /tmp/n2.log`)
	says(t, out, `^n1 .* up `, `^n2 .* up `, `^n1 .* up `, `^n2 .* up `)
}

// Whatever a command prints, it fails when that is lost.
func TestLostOutput(t *testing.T) {
	out := run(t, `
vmmcd --name system 2>/dev/null & await test -S /run/vmmc/node.sock
mkdir /mnt/base; vmmc session add --share /mnt/base --out /out s >/dev/null
for c in "vmmc version" "vmmc version --json" "vmmc --version" "vmmc --help" "vmmc help node" "vmmc doctor" \
	"vmmc completion bash" "vmmc node ls" "vmmc node ls --json" "vmmc session ls" "vmmc net map" "vmmc link ls" "vmmc ps s" \
	"vmmc run -d s true" "vmmc cert init --dir /tmp/ca --cluster lab" "vmmc cluster ls" \
	"vmmc cluster up --nodes 1 --dir /tmp/lab" "vmmc cluster down --dir /tmp/lab" "vmmcd --help" "cfgvmmc --help" "vrpcgen --help" \
	"vmmc demo --size 64K"; do
	if $c >/dev/full 2>/tmp/err; then status=0; else status=$?; fi
	echo "$status: $c: $(tail -n 1 /tmp/err)"
done
vmmc session del s`)
	if strings.Count(out, "no space left on device") != 22 || strings.Contains(out, "\n0: ") || strings.HasPrefix(out, "0: ") {
		t.Errorf("not all of 22 commands fail:\n%s", out)
	}
}

// The manual writes NODE1 and node1 for one node.
func TestNodeNamesHaveNoCase(t *testing.T) {
	out := run(t, `
ip link set lo up 2>/dev/null || true
vmmc cert init --dir /tmp/ca --cluster lab
vmmc cert node --dir /tmp/ca --out /tmp/ids NODE1
test -f /tmp/ids/node1/cert.pem
printf 'Node1 127.0.0.1:%d\n' 31461 >/tmp/hosts
vmmcd --name NODE1 --certs /tmp/ids/node1 --hosts /tmp/hosts 2>/tmp/log & await test -S /run/vmmc/node.sock || cat /tmp/log
mkdir /mnt/base
cfgvmmc NODE1 add s "" "" - /mnt/base /out && echo added
vmmc session ls --node nOdE1 | tail -n 1
cfgvmmc node1 del s && echo deleted`)
	says(t, out, `^added`, `node1`, `^deleted`)
}
