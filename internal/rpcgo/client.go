package rpcgo

import "github.com/vmmc-go/vmmc/internal/rpcl"

func (w *writer) client(g *rpcl.Program, s *service) {
	w.printf(`
// %[1]sClient calls %[2]s. It is a %[1]sServer too, whose procedures run elsewhere.
type %[1]sClient struct{ caller vrpc.Caller }

var _ %[1]sServer = (*%[1]sClient)(nil)

// New%[1]sClient returns a client whose calls go by c.
func New%[1]sClient(c vrpc.Caller) *%[1]sClient { return &%[1]sClient{c} }
`, s.base, s.Name)
	for _, p := range s.procs {
		w.printf("\n// %s calls procedure %d, %s.\n", p.method, p.Number, p.Name)
		w.printf("func (c *%sClient) %s(%s) %s {\n", s.base, p.method, p.parameters(true), p.results())
		args := "xdr.Void{}"
		switch {
		case p.direct():
			args = p.args[0].name
		case len(p.args) > 0:
			args = "&" + p.kind + "Args{"
			for i, a := range p.args {
				if i > 0 {
					args += ", "
				}
				if byPointer(a.Var) {
					args += "*"
				}
				args += a.name
			}
			args += "}"
		}
		name := g.Name + " " + s.Name + " " + p.Name
		call := "c.caller.Call(ctx, " + s.program + ", " + s.version + ", " + p.number + ", " + args + ", "
		switch {
		case p.res.goType == "":
			w.printf("return vrpc.Named(%sxdr.Void{}), %q)\n}\n", call, name)
		case byPointer(p.res.Var):
			w.printf("res := new(%s)\nif err := %sres); err != nil {\nreturn nil, vrpc.Named(err, %q)\n}\nreturn res, nil\n}\n", w.goType(p.res.Var), call, name)
		default:
			w.printf("var res %sResult\nerr := %s&res)\nreturn res.Value, vrpc.Named(err, %q)\n}\n", p.kind, call, name)
		}
	}
}

// wrappers writes the types of arguments and results that do not encode themselves.
func (w *writer) wrappers(p *proc) {
	if len(p.args) > 0 && !p.direct() {
		var vars []*rpcl.Var
		var names []string
		for _, a := range p.args {
			vars, names = append(vars, a.Var), append(names, a.field)
		}
		w.wrapper(p.kind+"Args", names, vars)
	}
	if p.res.goType != "" && !byPointer(p.res.Var) {
		w.wrapper(p.kind+"Result", []string{"Value"}, []*rpcl.Var{p.res.Var})
	}
}

func (w *writer) wrapper(name string, names []string, vars []*rpcl.Var) {
	w.printf("\ntype %s struct {\n", name)
	for i, v := range vars {
		w.printf("%s %s\n", names[i], w.goType(v))
	}
	w.printf("}\n\nfunc (v *%s) EncodeXDR(e *xdr.Encoder) {\n", name)
	for i, v := range vars {
		w.encode("v."+names[i], v)
	}
	w.printf("}\n\nfunc (v *%s) DecodeXDR(d *xdr.Decoder) {\n", name)
	for i, v := range vars {
		w.decode("v."+names[i], v)
	}
	w.printf("}\n")
}

// calls writes, for each procedure, the type that holds a call at the server.
func (w *writer) calls(s *service) {
	for _, p := range s.procs {
		w.printf("\ntype %s struct {\nserver %sServer\n", p.kind, s.base)
		switch {
		case p.direct():
			w.printf("args %s\n", p.args[0].goType)
		case len(p.args) > 0:
			w.printf("args %sArgs\n", p.kind)
		}
		switch {
		case p.res.goType == "":
		case byPointer(p.res.Var):
			w.printf("res %s\n", p.res.goType)
		default:
			w.printf("res %sResult\n", p.kind)
		}
		w.printf("}\n\n")
		if len(p.args) == 0 {
			w.printf("func (*%s) DecodeXDR(*xdr.Decoder) {}\n\n", p.kind)
		} else {
			w.printf("func (c *%s) DecodeXDR(d *xdr.Decoder) { c.args.DecodeXDR(d) }\n\n", p.kind)
		}
		if p.res.goType == "" {
			w.printf("func (*%s) EncodeXDR(*xdr.Encoder) {}\n\n", p.kind)
		} else {
			w.printf("func (c *%s) EncodeXDR(e *xdr.Encoder) { c.res.EncodeXDR(e) }\n\n", p.kind)
		}
		w.do(p)
	}
}

func (w *writer) do(p *proc) {
	call := "c.server." + p.method + "(ctx"
	for _, a := range p.args {
		call += ", "
		if byPointer(a.Var) {
			call += "&"
		}
		call += "c.args"
		if !p.direct() {
			call += "." + a.field
		}
	}
	call += ")"
	switch {
	case p.res.goType == "":
		w.printf("func (c *%s) Do(ctx context.Context) error { return %s }\n", p.kind, call)
	case byPointer(p.res.Var):
		w.printf("func (c *%s) Do(ctx context.Context) (err error) {\nif c.res, err = %s; err == nil && c.res == nil {\nreturn vrpc.ErrNoResult\n}\nreturn err\n}\n", p.kind, call)
	default:
		w.printf("func (c *%s) Do(ctx context.Context) (err error) {\nc.res.Value, err = %s\nreturn err\n}\n", p.kind, call)
	}
}
