package users

import "testing"

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
