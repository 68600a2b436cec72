package users

import (
	"strings"
	"testing"
)

// Another user makes the place of the victim's socket first. Her daemon does not
// start there, her programs and tools do not believe what listens there, and nothing
// of hers is written to.
func TestPlantedPlaces(t *testing.T) {
	const precious = `
mkdir /mnt/v; echo precious >/mnt/v/file; chown -R $VICTIM:$VICTIM /mnt/v
precious() { echo "file: $(cat /mnt/v/file 2>&1) $(stat -c %a /mnt/v/file) $(ls /mnt/v | tr '\n' ' ')"; }
evil() { # SOCKET: the other user's daemon, which all may connect to
	as $OTHER vmmcd --name evil --socket $1 2>/dev/null &
	await test -S $1
	as $OTHER chmod 755 $(dirname $1) 2>/dev/null || true
	as $OTHER chmod 666 $1
}
`
	dir := "/tmp/vmmc-64401"
	theirs := `(directory|link|socket|node\.sock\.lock).* belongs to user 64402, want user 64401`
	for _, c := range []struct {
		name, script string
		says         []string
	}{
		{
			"an empty directory", `
as $OTHER mkdir -m 777 $D
refused as $VICTIM vmmcd --name mine
ls $D`, []string{`^status 1: .*` + theirs + `.*--socket`},
		},
		{
			"a link for the lock", `
as $OTHER mkdir -m 777 $D
as $OTHER ln -s /mnt/v/file $D/node.sock.lock
refused as $VICTIM vmmcd --name mine
precious`, []string{`^status 1: .*` + theirs, `^file: precious 644 file $`},
		},
		{
			"a link for the directory", `
as $OTHER ln -s /mnt/v $D
refused as $VICTIM vmmcd --name mine
refused as $VICTIM vmmc node ls
precious`, []string{`^status 1: .*` + theirs, `^status 1: .*` + theirs, `^file: precious 644 file $`},
		},
		{
			"a daemon", `
evil $D/node.sock
refused join $VICTIM
refused as $VICTIM vmmc node ls
refused as $VICTIM vmmc ps t
refused as $VICTIM cfgvmmc ls evil
refused as $VICTIM vmmcd --name mine
join $OTHER || true`, []string{`^status 1: .*` + theirs, `^status 1: .*` + theirs, `^status 1: .*` + theirs, `^status [12]: .*`, `^status 1: .*` + theirs, `^open|joined|no node daemon`},
		},
		{
			"a daemon in the victim's name, that the environment names", `
evil /tmp/n1.sock
export VMMC_SOCKET=/tmp/n1.sock
refused join $VICTIM
refused as $VICTIM vmmc node ls
refused as $VICTIM vmmc node ls --socket /tmp/n1.sock
join $OTHER
refused vmmc node ls`, []string{
				`^status 1: .*socket /tmp/n1.sock belongs to user 64402, want user 64401`, `^status 1: .*belongs to user 64402`,
				`^status 1: .*belongs to user 64402`, `^joined evil`, `^status 1: .*belongs to user 64402, want user 0`,
			},
		},
		{
			"files beside a socket in /tmp", `
for f in lock roll roll.new; do
	as $OTHER ln -s /mnt/v/file /tmp/n1.sock.$f
	refused as $VICTIM vmmcd --name mine --socket /tmp/n1.sock
	rm -f /tmp/n1.sock.$f
	precious
done
export VMMC_SOCKET=/tmp/n1.sock
as $OTHER ln -s /mnt/v/file /tmp/n1.sock.bell
as $VICTIM vmmcd --name mine --socket /tmp/n1.sock 2>/dev/null & await join $VICTIM
kill $!; wait $! || true
precious
rm -f /tmp/n1.sock*
as $OTHER touch /tmp/n1.sock.lock
refused as $VICTIM vmmcd --name mine --socket /tmp/n1.sock
refused timeout 20 vmmcd --name mine --socket /tmp/n1.sock`, []string{
				`^status 1: .*n1.sock.lock: it is a symbolic link`, `^file: precious 644 file $`, `^file: precious 644 file $`, `^file: precious 644 file $`, `^file: precious 644 file $`,
				`^status 1: .*n1.sock.lock.*belongs to user 64402, want user 64401`, `^status 1: .*n1.sock.lock.*belongs to user 64402, want user 0`,
			},
		},
		{
			"the directories of logs and state", `
as $OTHER mkdir -m 777 /tmp/logs /tmp/state
as $OTHER ln -s /mnt/v/file /tmp/logs/server.log
as $OTHER ln -s /mnt/v/file /tmp/state/lock
as $VICTIM mkdir -p /mnt/$VICTIM/root
as $VICTIM ln -s /tmp/logs /tmp/state /mnt/$VICTIM/root/
as $VICTIM vmmcd --name mine --root /mnt/$VICTIM/root >/tmp/said 2>&1 &
await test -S /mnt/$VICTIM/root/run/node.sock
await as $VICTIM vmmc node ls --socket /mnt/$VICTIM/root/run/node.sock
refused as $VICTIM vmmc session add --socket /mnt/$VICTIM/root/run/node.sock --share /mnt/$VICTIM --out /out s
precious
grep -o 'directory /tmp/logs belongs to user 64402' /tmp/said | head -n 1`, []string{
				`^status 1: .*directory /tmp/state belongs to user 64402`, `^file: precious 644 file $`, `directory /tmp/logs belongs to user 64402`,
			},
		},
		{
			"files in a state directory in /tmp", `
for f in .room down.new; do as $OTHER ln -s /mnt/v/file /tmp/$f; done
as $VICTIM vmmcd --name mine --socket /mnt/$VICTIM/s --state /tmp 2>/tmp/said &
export VMMC_SOCKET=/mnt/$VICTIM/s
await as $VICTIM vmmc node ls >/dev/null
as $VICTIM vmmc node ls | tail -n 1
as $VICTIM vmmc node down mine
grep down.new /tmp/said
precious`, []string{`^mine .* cannot be written.*/tmp/.room`, `^mine is down`, `the next daemon will not know that the node is down.*/tmp/down.new`, `^file: precious 644 file $`},
		},
		{
			"the record of a cluster", `
as $OTHER mkdir -m 777 /tmp/lab
sleep 1000 & victim=$!
started=$(cut -d' ' -f22 /proc/$victim/stat)
printf '{"entries":[],"nodes":[{"name":"n1","process":{"pid":%d,"started":%d}}]}' $victim $started >/tmp/lab/cluster.json
chown $OTHER /tmp/lab/cluster.json
refused vmmc cluster down --dir /tmp/lab
refused vmmc cluster up --dir /tmp/lab
kill -0 $victim && echo "alive"`, []string{`^status 1: .*/tmp/lab belongs to user 64402`, `^status 1: .*/tmp/lab belongs to user 64402`, `^alive$`},
		},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			says(t, run(t, precious+"D="+dir+"\n"+c.script), c.says...)
		})
	}
}

// A program that has its owner's rights and not its caller's asks no daemon that the
// caller names.
func TestSetuidProgramsIgnoreTheEnvironment(t *testing.T) {
	out := run(t, `
vmmcd --name system & await test -S /run/vmmc/node.sock
as $OTHER vmmcd --name evil --socket /tmp/evil/node.sock 2>/dev/null & await test -S /tmp/evil/node.sock
as $OTHER chmod 755 /tmp/evil; as $OTHER chmod 666 /tmp/evil/node.sock
mkdir -p /tmp/root/run; ln -s /tmp/evil/node.sock /tmp/root/run/
cp /run/bin/join /run/bin/vmmc /mnt/
for how in plain setuid setgid; do
	case $how in
	plain) chmod 755 /mnt/join /mnt/vmmc ;;
	setuid) chown $VICTIM:$VICTIM /mnt/join /mnt/vmmc; chmod 4755 /mnt/join /mnt/vmmc ;;
	setgid) chmod 755 /mnt/join /mnt/vmmc; chown 0:$VICTIM /mnt/join /mnt/vmmc; chmod 2755 /mnt/join /mnt/vmmc ;;
	esac
	echo "$how:"
	VMMC_TEST_ROLE=join VMMC_SOCKET=/tmp/evil/node.sock as $OTHER /mnt/join --
	VMMC_SOCKET=/tmp/evil/node.sock as $OTHER /mnt/vmmc node ls | tail -n 1
	VMMC_TEST_ROLE=join XDG_RUNTIME_DIR=/tmp/x VMMC_ROOT=/tmp/root as $OTHER /mnt/join -- || true
done`)
	says(t, out, `^plain:`, `^joined evil`, `^evil `, `.*`, `^setuid:`, `^joined system`, `^system `, `^joined system`, `^setgid:`, `^joined system`, `^system `, `^joined system`)
}
