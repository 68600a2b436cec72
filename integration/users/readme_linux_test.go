package users

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// readme has the blocks of code of README.md, by the titles of their sections.
func readme(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]string{}
	title, code, in := "", "", false
	for line := range strings.Lines(string(b)) {
		switch {
		case strings.HasPrefix(line, "```") && in:
			blocks[title] = append(blocks[title], code)
			code, in = "", false
		case strings.HasPrefix(line, "```"):
			in = true
		case in:
			code += line
		case strings.HasPrefix(line, "#"):
			title = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return blocks
}

// checkout is a directory as README's commands find it: the programs are in bin.
const checkout = `
mkdir /mnt/work; cd /mnt/work; ln -s /run/bin bin
`

var socketFlag = regexp.MustCompile(`--socket (\S+)`)

// README's commands for several machines make a cluster, in which its commands for
// sessions work; root's as well. The two machines are network namespaces with README's
// addresses, and share their files.
func TestReadmesMachines(t *testing.T) {
	blocks := readme(t)
	several, all := blocks["Several machines"], blocks["Programs on all nodes"]
	if len(several) != 3 || len(all) != 1 || !strings.HasPrefix(several[1], "# vmmc-hosts.txt\n") || !socketFlag.MatchString(several[2]) {
		t.Fatalf("README.md has other blocks than this test: %q, %q", several, all)
	}
	for _, tool := range []string{"ip", "nsenter"} {
		_, err := exec.LookPath(tool)
		testutil.Require(t, err == nil, "there is no "+tool+"; install iproute2 and util-linux")
	}
	socket := socketFlag.FindStringSubmatch(several[2])[1]
	second := strings.NewReplacer("--name n1", "--name n2", "/n1", "/n2").Replace(several[2])
	out := run(t, checkout+several[0]+`
cat >vmmc-hosts.txt <<'END'
`+several[1]+`END
cat >link.sh <<'END'
ip link set lo up
ip addr add $1/24 dev $2
ip link set $2 up
shift 2
exec sh -e -c "$1"
END
unshare --net sleep 1000 & one=$!
await sh -c "! [ $(readlink /proc/self/ns/net) = \$(readlink /proc/$one/ns/net) ]"
unshare --net sleep 1000 & two=$!
await sh -c "! [ $(readlink /proc/self/ns/net) = \$(readlink /proc/$two/ns/net) ]"
in1() { nsenter --net=/proc/$one/ns/net "$@"; }
in2() { nsenter --net=/proc/$two/ns/net "$@"; }
in1 ip link add wire1 type veth peer name wire2 netns /proc/$two/ns/net
in1 sh link.sh 10.0.0.1 wire1 true
in2 sh link.sh 10.0.0.2 wire2 true
cat >first <<'END'
`+several[2]+`END
cat >second <<'END'
`+second+`END
in1 sh -e first >n1.log 2>&1 &
in2 sh -e second >n2.log 2>&1 &
export VMMC_SOCKET=`+socket+`
await bin/vmmc node ls || cat n1.log n2.log
bin/vmmc node ls
cat >all <<'END'
`+all[0]+`END
sh -e -x all 2>&1 && echo "all of it worked"`)
	says(t, out, `^n1 .* up `, `^n2 .* up `, `vmmc session add`, `vmmc session del test`, `^all of it worked$`)
}

// README's commands for several nodes on one machine, and those for sessions and for
// how nodes are.
func TestReadmesCluster(t *testing.T) {
	blocks := readme(t)
	one, all, how := blocks["Several nodes on one machine"], blocks["Programs on all nodes"], blocks["How they are"]
	if len(one) != 1 || len(all) != 1 || len(how) != 1 {
		t.Fatalf("README.md has other blocks than this test: %q, %q, %q", one, all, how)
	}
	up, down, ok := strings.Cut(one[0], "bin/vmmc cluster down")
	if !ok {
		t.Fatalf("README.md takes no cluster down: %s", one[0])
	}
	out := run(t, checkout+`
ip link set lo up 2>/dev/null || true
cat >all <<'END'
`+up+all[0]+how[0]+"bin/vmmc cluster down"+down+`END
sh -e -x all 2>&1 && echo "all of it worked"`)
	says(t, out, `^n1 .* up `, `^n3 .* up `, `vmmc session del test`, `vmmc net map`, `vmmc doctor`, `^all of it worked$`)
}
