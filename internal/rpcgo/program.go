package rpcgo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/internal/rpcl"
)

// service is what is written of one version of a program.
type service struct {
	*rpcl.Version
	program string // the constants of the numbers
	version string
	base    string // what the names of its types begin with
	procs   []*proc
}

// proc is one procedure.
type proc struct {
	*rpcl.Procedure
	number string // the constant
	method string
	kind   string // what its own types are called
	args   []arg
	res    result
}

type arg struct {
	*rpcl.Var
	name, field, goType string
}

type result struct {
	*rpcl.Var
	goType string // as it is returned; "" for void
}

// direct reports whether the arguments are one value that encodes itself.
func (p *proc) direct() bool { return len(p.args) == 1 && byPointer(p.args[0].Var) }

func (w *writer) program(g *rpcl.Program) {
	w.printf("\n// The program %s, its versions and procedures.\nconst (\n", g.Name)
	program := w.number(g.Name, "", g.Value, g.Number)
	services := make([]*service, len(g.Versions))
	for i, v := range g.Versions {
		services[i] = &service{Version: v, program: program, version: w.number(v.Name, g.Name, v.Value, v.Number)}
	}
	for _, s := range services {
		w.printf("\n")
		for _, f := range s.Procedures {
			s.procs = append(s.procs, &proc{Procedure: f, number: w.number(f.Name, s.Name, f.Value, f.Number)})
		}
	}
	w.printf(")\n")
	for _, s := range services {
		w.prepare(g, s)
		w.server(s)
		w.client(g, s)
		for _, p := range s.procs {
			w.wrappers(p)
		}
		w.calls(s)
	}
}

// number writes the constant of a program, version or procedure. Procedures of several versions may
// share a name, and then a number or not.
func (w *writer) number(name, within string, x *rpcl.Expr, n uint32) string {
	text := literal(&rpcl.Const{Value: x, Num: bigOf(n)})
	key := fmt.Sprintf("%s=%d", name, n)
	if w.named[key] {
		return constant(name)
	}
	con := constant(name)
	if !w.scope.free(con) {
		con = w.scope.claim(constant(name + "_" + within))
	} else {
		w.scope.claim(con)
		w.named[key] = true
	}
	w.printf("%s = %s\n", con, text)
	return con
}

// prepare chooses the names of a version.
func (w *writer) prepare(g *rpcl.Program, s *service) {
	s.base = exported(s.Name)
	around := func() []string {
		return []string{
			s.base + "Server", s.base + "Client", "New" + s.base + "Client", "New" + s.base + "Service",
			"Register" + s.base, "Unimplemented" + s.base + "Server",
		}
	}
	if !w.scope.free(around()...) {
		s.base = exported(g.Name + "_" + s.Name)
	}
	for !w.scope.free(around()...) {
		s.base += "_"
	}
	for _, n := range around() {
		w.scope.claim(n)
	}
	short := map[string]int{}
	for _, p := range s.procs {
		short[method(p.Name)]++
	}
	methods := scope{}
	for _, p := range s.procs {
		if p.method = method(p.Name); short[p.method] > 1 {
			p.method = exported(p.Name)
		}
		p.method = methods.claim(p.method)
		p.kind = w.scope.claim(strings.ToLower(s.base[:1]) + s.base[1:] + p.method)
		w.scope.claim(p.kind + "Args")
		w.scope.claim(p.kind + "Result")
		names, fields := scopeOf(notForArguments...), scopeOf("EncodeXDR", "DecodeXDR")
		for i, v := range p.Args {
			n := v.Name
			if n == "" && len(p.Args) == 1 {
				n = "arg"
			} else if n == "" {
				n = fmt.Sprintf("arg%d", i+1)
			}
			a := arg{v, names.claim(local(n)), fields.claim(exported(n)), w.goType(v)}
			p.args = append(p.args, a)
		}
		if p.res.Var = p.Result; p.Result.Kind != rpcl.Void {
			p.res.goType = w.goType(p.Result)
			if byPointer(p.Result) {
				p.res.goType = "*" + p.res.goType
			}
		}
	}
}

// parameters are those of the method, with or without their names.
func (p *proc) parameters(named bool) string {
	out := "ctx context.Context"
	if !named {
		out = "context.Context"
	}
	for _, a := range p.args {
		out += ", "
		if named {
			out += a.name + " "
		}
		if byPointer(a.Var) {
			out += "*"
		}
		out += a.goType
	}
	return out
}

func (p *proc) results() string {
	if p.res.goType == "" {
		return "error"
	}
	return "(" + p.res.goType + ", error)"
}

func (w *writer) server(s *service) {
	w.printf(`
// %[1]sServer is a server of %[2]s. What a procedure is handed, and all that it leads to, is the
// caller's again when the results are encoded, after the procedure has returned.
type %[1]sServer interface {
`, s.base, s.Name)
	for _, p := range s.procs {
		w.printf("%s(%s) %s\n", p.method, p.parameters(true), p.results())
	}
	w.printf(`}

// Unimplemented%[1]sServer has no procedures. A server that embeds it may have some of them only.
type Unimplemented%[1]sServer struct{}

var _ %[1]sServer = Unimplemented%[1]sServer{}
`, s.base)
	for _, p := range s.procs {
		w.printf("\n// %s is procedure %d, %s.\n", p.method, p.Number, p.Name)
		w.printf("func (Unimplemented%sServer) %s(%s) ", s.base, p.method, p.parameters(false))
		switch {
		case p.res.goType != "":
			w.printf("(res %s, err error) {\nreturn res, vrpc.ErrProcUnavail\n}\n", p.res.goType)
		case p.Number == 0 && len(p.args) == 0: // every program has it
			w.printf("error {\nreturn nil\n}\n")
		default:
			w.printf("error {\nreturn vrpc.ErrProcUnavail\n}\n")
		}
	}
	w.printf(`
// Register%[1]s has %[2]s served by s.
func Register%[1]s(r vrpc.Registrar, s %[1]sServer) error {
	return r.Register(New%[1]sService(s))
}

// New%[1]sService describes %[2]s as s serves it.
func New%[1]sService(s %[1]sServer) *vrpc.Service {
	return &vrpc.Service{
		Name: %[2]q, Program: %[3]s, Version: %[4]s,
		Procedures: []vrpc.Procedure{
`, s.base, s.Name, s.program, s.version)
	sorted := slices.Clone(s.procs)
	slices.SortFunc(sorted, func(a, b *proc) int { return int(int64(a.Number) - int64(b.Number)) })
	for _, p := range sorted {
		values := ""
		if !slices.ContainsFunc(p.args, func(a arg) bool { return !isValue(a.Var) }) {
			values = ", Values: true"
		}
		w.printf("{Number: %s, Name: %q%s, New: func() vrpc.Call { return &%s{server: s} }},\n", p.number, p.Name, values, p.kind)
	}
	w.printf("},\n}\n}\n")
}
