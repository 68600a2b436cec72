package main

import (
	"fmt"
	"strings"
)

// The functions of libmpifort_abi that need no hand.

// converterOf is the part of a handle's converters' names: Type of MPI_Datatype.
func converterOf(t string) string {
	if t == "MPI_Datatype" {
		return "Type"
	}
	return strings.TrimPrefix(t, "MPI_")
}

// parameter is how the function in C declares the parameter. Fortran passes all by reference.
func (f *fparam) parameter() string {
	constant := ""
	if f.intent == "IN" {
		constant = "const "
	}
	switch f.kind {
	case buffer:
		return constant + "void *" + f.name
	case text:
		return constant + "char *" + f.name
	case long:
		return constant + f.typ + " *" + f.name
	case pointer:
		return "void **" + f.name
	case procedure:
		return "mpif_" + strings.TrimPrefix(f.typ, "MPI_") + " *" + f.name
	case integer, logical, handle, status:
	}
	return constant + "int *" + f.name
}

// parameters are those of the function in C. The lengths of texts are behind all others.
func (c *fcall) parameters() []string {
	var words, lengths []string
	for i := range c.params {
		f := &c.params[i]
		words = append(words, f.parameter())
		if f.kind == text {
			lengths = append(lengths, "size_t "+f.name+"_len")
		}
	}
	if c.ierror() {
		words = append(words, "int *ierror")
	}
	return append(words, lengths...)
}

// body is what a function does with its parameters: before the call, in it, and behind it.
type body struct {
	before  []string
	check   []string // must not be null
	args    []string
	success []string // when the call has returned MPI_SUCCESS
	always  []string // whatever the call returned
}

func (b *body) add(f *fparam) {
	local := "c_" + f.name
	arg := f.name
	switch f.kind {
	case buffer:
		arg = "BUFFER(" + f.name + ")"
	case integer, logical, long:
		arg = b.number(f, local)
	case status:
		arg = "(const MPI_Status *)" + f.name
		if f.intent != "IN" {
			arg = "STATUS(" + f.name + ")"
		}
		if f.shape != "" {
			arg = "STATUSES(" + f.name + ")"
		}
	case text:
		arg = local
		if f.intent != "IN" {
			b.before = append(b.before, fmt.Sprintf("char %s[%s] = \"\";", local, f.size))
			b.success = append(b.success, fmt.Sprintf("mpif_pad(%s, %[1]s_len, %s);", f.name, local))
			break
		}
		copied := "mpif_text"
		if f.word {
			copied = "mpif_word"
		}
		b.before = append(b.before, fmt.Sprintf("char *%s = %s(%s, %[3]s_len);", local, copied, f.name))
		b.check = append(b.check, local)
		b.always = append(b.always, "free("+local+");")
	case procedure:
		arg = local
		b.before = append(b.before, fmt.Sprintf("%s *%s =\n        mpif_wrap_%s(%s);", f.typ, local, strings.TrimPrefix(f.typ, "MPI_"), f.name))
		b.check = append(b.check, local)
	case handle:
		arg = b.handle(f, local)
	case pointer:
	}
	b.args = append(b.args, arg)
}

func (b *body) number(f *fparam, local string) string {
	switch {
	case f.special != "":
		return f.special + "(" + f.name + ")"
	case f.index && f.shape == "":
		b.before = append(b.before, "int "+local+" = MPI_UNDEFINED;")
		b.always = append(b.always, fmt.Sprintf("*%s = mpif_index(%s);", f.name, local))
		return "&" + local
	case f.index:
		b.before = append(b.before, "*outcount = MPI_UNDEFINED;")
		b.always = append(b.always, "mpif_indexes("+f.name+", *outcount);")
	case strings.HasPrefix(f.shape, "(3"):
		return "(int(*)[3])" + f.name
	case f.shape != "":
	case f.intent == "IN":
		return "*" + f.name
	case f.kind == logical:
		b.before = append(b.before, "int "+local+" = 0;")
		b.success = append(b.success, fmt.Sprintf("*%s = %s != 0;", f.name, local))
		return "&" + local
	}
	return f.name
}

func (b *body) handle(f *fparam, local string) string {
	conv := "PMPI_" + converterOf(f.typ)
	if f.kept {
		b.before = append(b.before, fmt.Sprintf("MPI_Datatype *%s =\n        mpif_types(%s, %s);", local, f.name, f.length))
		b.check = append(b.check, local)
		return local
	}
	if f.shape != "" {
		b.before = append(b.before,
			fmt.Sprintf("int n_%s = %s;", f.name, f.length),
			fmt.Sprintf("%s few_%s[FEW];", f.typ, f.name),
			fmt.Sprintf("%s *%s =\n        mpif_room(few_%s, n_%[3]s, sizeof *%[2]s);", f.typ, local, f.name),
			fmt.Sprintf("for (int i = 0; %s && i < n_%s; i++) {\n        %[1]s[i] = %[3]s_fromint(%[2]s[i]);\n    }", local, f.name, conv))
		b.check = append(b.check, local)
		if f.intent == "INOUT" {
			b.always = append(b.always,
				fmt.Sprintf("for (int i = 0; %s && i < n_%s; i++) {\n        %[2]s[i] = %[3]s_toint(%[1]s[i]);\n    }", local, f.name, conv))
		}
		b.always = append(b.always, fmt.Sprintf("mpif_leave(few_%s, %s);", f.name, local))
		return local
	}
	if !f.address {
		return conv + "_fromint(*" + f.name + ")"
	}
	back := fmt.Sprintf("*%s = %s_toint(%s);", f.name, conv, local)
	switch f.intent {
	case "OUT":
		b.before = append(b.before, fmt.Sprintf("%s %s = %s_NULL;", f.typ, local, strings.ToUpper(f.typ)))
		b.success = append(b.success, back)
	case "INOUT":
		b.always = append(b.always, back)
		fallthrough
	default:
		b.before = append(b.before, fmt.Sprintf("%s %s = %s_fromint(*%s);", f.typ, local, conv, f.name))
	}
	return "&" + local
}

// definition is the function in C.
func (c *fcall) definition() string {
	var out strings.Builder
	name := strings.ToLower(c.base())
	head := "API void F77(" + name + ")("
	if c.large {
		head = "API void F08(" + name + ")("
	}
	out.WriteString("\n" + wrap(head, c.parameters(), ") {\n"))
	var b body
	for i := range c.params {
		b.add(&c.params[i])
	}
	for _, line := range b.before {
		out.WriteString("    " + line + "\n")
	}
	if len(b.check) > 0 {
		out.WriteString(wrap("    int e = MPI_ERR_NO_MEM;\n    if (", []string{strings.Join(b.check, " && ")}, ") {\n"))
		out.WriteString(wrap("        e = CALL("+c.base()+")(", b.args, ");\n"))
		out.WriteString("    }\n")
	} else {
		if len(b.args) == 0 {
			b.args = []string{""}
		}
		out.WriteString(wrap("    int e = CALL("+c.base()+")(", b.args, ");\n"))
	}
	if len(b.success) > 0 {
		out.WriteString("    if (e == MPI_SUCCESS) {\n")
		for _, line := range b.success {
			out.WriteString("        " + line + "\n")
		}
		out.WriteString("    }\n")
	}
	for _, line := range b.always {
		out.WriteString("    " + line + "\n")
	}
	out.WriteString("    IERROR(e);\n}\n")
	if !c.large && !c.old {
		out.WriteString("SAME(" + name + ");\n")
	}
	for i := range c.params {
		if c.params[i].kind == pointer && !c.large {
			out.WriteString("CPTR(" + name + ");\n")
		}
	}
	return out.String()
}

// fortranFunctions is the file of the functions, which is compiled for MPI_ and for PMPI_.
func fortranFunctions(calls []fcall) string {
	var b strings.Builder
	b.WriteString("/* Code generated by mpigen from calls.txt and fortran.txt. DO NOT EDIT. */\n#include \"fort.h\"\n")
	for i := range calls {
		if !calls[i].hand {
			b.WriteString(calls[i].definition())
		}
	}
	return b.String()
}
