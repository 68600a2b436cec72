// Package vrpcgen is the command line of vrpcgen, which makes Go of .x files.
package vrpcgen

import (
	"fmt"
	"go/build"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/rpcgo"
	"github.com/vmmc-go/vmmc/internal/rpcl"
	"github.com/vmmc-go/vmmc/internal/serve"
)

type options struct {
	pkg, out                     string
	dirs, defines, undef, extern []string
}

// Command is vrpcgen.
func Command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "vrpcgen [flags] FILE.x",
		Short: "Make Go of the RPC language, which rpcgen makes C of",
		Long: `Make Go of a file in the RPC language: types that encode and decode themselves, and
for each version of a program a client, the interface of a server, and a function
that registers one.

The file is what rpcgen takes: with #define, #include and conditions, lines that
begin with %, and C's ways to name types. RPC_HDR, RPC_XDR, RPC_SVC and RPC_CLNT are
defined, since one Go file is all that. Of the lines with %, which are C, constants
in #define are understood, and an #include of NAME.h makes the types of NAME.x
known, if that is there: they belong to the Go made of NAME.x, in the same package.

Names have Go's form: nfs_fh3 is NfsFh3, and procedure NFSPROC3_GETATTR is Getattr.
Constants in capitals stay as they are. A union is a struct with its discriminant and
a field for each arm; optional data is a pointer. Enums take any int when they are
decoded, for a later version of a protocol may have more of them; unions do not.

- for FILE.x is standard input, and without -o the Go is printed.

Exit status: 0 it is written, 1 the file is wrong, 2 it was called wrongly.`,
		Example: `  vrpcgen -package nfs -o nfs_prot.go /usr/include/rpcsvc/nfs_prot.x
  //go:generate go run github.com/vmmc-go/vmmc/cmd/vrpcgen -o calc.go calc.x`,
		Version: vmmc.Release,
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"x"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringVarP(&o.pkg, "package", "p", "", "name of the Go package (default: GOPACKAGE, as go generate sets it, or the name of the file)")
	f.StringVarP(&o.out, "output", "o", "", "file to write")
	f.StringArrayVarP(&o.dirs, "include", "I", nil, "directory where included files are looked for")
	f.StringArrayVarP(&o.defines, "define", "D", nil, "macro to define, NAME or NAME=VALUE")
	f.StringArrayVarP(&o.undef, "undefine", "U", nil, "macro that is not to be defined")
	f.StringSliceVar(&o.extern, "extern", nil, "types that other code of the package defines, with their methods")
	for _, dir := range []string{"include"} {
		if err := c.MarkFlagDirname(dir); err != nil {
			panic(err) // the flag is defined above
		}
	}
	if err := c.MarkFlagFilename("output", "go"); err != nil {
		panic(err) // as above
	}
	for _, name := range []string{"package", "define", "undefine", "extern"} {
		if err := c.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions); err != nil {
			panic(err) // as above
		}
	}
	return c
}

// Arguments lets long flags have one dash, as those of the Go tools have: -package.
func Arguments(args []string) []string {
	out := make([]string, len(args))
	long := Command().Flags()
	for i, a := range args {
		out[i] = a
		name, _, _ := strings.Cut(a, "=")
		if a == "--" {
			copy(out[i:], args[i:])
			break
		}
		if len(name) > 2 && name[0] == '-' && name[1] != '-' &&
			(long.Lookup(name[1:]) != nil || name == "-help" || name == "-version") {
			out[i] = "-" + a
		}
	}
	return out
}

func (o *options) run(c *cobra.Command, in string) error {
	defines := map[string]string{}
	for _, d := range o.defines {
		name, value, ok := strings.Cut(d, "=")
		if !ok {
			value = "1"
		}
		if !token.IsIdentifier(name) {
			return serve.Usage("--define %s (-D): wanted NAME or NAME=VALUE", d)
		}
		defines[name] = value
	}
	for _, l := range []struct {
		flag  string
		names []string
	}{{"undefine", o.undef}, {"extern", o.extern}} {
		for _, name := range l.names {
			if !token.IsIdentifier(name) && !token.IsKeyword(name) {
				return serve.Usage("--%s %s: it is no name", l.flag, name)
			}
		}
	}
	pkg, err := o.packageName(in)
	if err != nil {
		return err
	}
	f, err := rpcl.Load(in, rpcl.Options{
		Dirs: o.dirs, Defines: defines, Undef: o.undef, Extern: o.extern,
		Open: func(path string) ([]byte, error) {
			if path == "-" && in == "-" {
				return io.ReadAll(c.InOrStdin())
			}
			return os.ReadFile(path)
		},
	})
	if err != nil {
		return err
	}
	code, err := rpcgo.Write(f, pkg)
	if err != nil {
		return err
	}
	if o.out == "" {
		_, err = c.OutOrStdout().Write(code)
		return err
	}
	if err := os.WriteFile(o.out, code, 0o644); err != nil { //nolint:gosec // source code, as the umask has it
		return serve.Flag("output", o.out, err)
	}
	if !compiled(o.out) {
		_, err = fmt.Fprintf(c.ErrOrStderr(),
			"vrpcgen: go build leaves %s out on some systems, because of how its name ends\n", o.out)
	}
	return err
}

// compiled reports whether go build takes a file of that name wherever it builds: handle_arm.go is
// for one architecture, and handle_test.go for tests.
func compiled(path string) bool {
	nowhere := build.Default
	nowhere.GOOS, nowhere.GOARCH = "nowhere", "nowhere"
	ok, err := nowhere.MatchFile(filepath.Split(path))
	return (ok || err != nil) && !strings.HasSuffix(path, "_test.go")
}

func (o *options) packageName(in string) (string, error) {
	name, from := o.pkg, "-package"
	if name == "" {
		name, from = env.Get("GOPACKAGE"), "GOPACKAGE"
	}
	if name == "" {
		base := filepath.Base(in)
		name, from = strings.ToLower(strings.TrimSuffix(base, filepath.Ext(base))), "the file's name"
	}
	if !token.IsIdentifier(name) || name == "_" {
		return "", serve.Usage("%q, from %s, is no name of a package: give one by -package", name, from)
	}
	return name, nil
}
