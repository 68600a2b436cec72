package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The modules mpi and mpi_f08, and mpif.h.

//go:embed fortran_types.txt
var fortranTypes string

//go:embed fortran_callbacks.txt
var fortranCallbacks string

// bind is one of the modules' ways to declare calls.
type bind struct {
	f08    bool
	prefix string // "": MPI_, "P": PMPI_
}

// declare is the declaration of a parameter.
func (b *bind) declare(f *fparam) []string {
	typ, shape := "integer", f.shape
	switch f.kind {
	case integer:
	case long:
		typ = "integer(8)"
	case logical:
		typ = "logical"
	case text:
		typ = "character(len=*)"
	case buffer:
		if f.cptr && b.f08 {
			return []string{"type(c_ptr), intent(out) :: " + f.name}
		}
		typ, shape = "type(*), dimension(*)", ""
	case pointer:
		typ = "integer(8)"
		if b.f08 {
			typ = "type(c_ptr)"
		}
	case status:
		switch {
		case b.f08:
			typ = "type(MPI_Status)"
		case shape != "":
			shape = "(8, *)"
		default:
			shape = "(8)"
		}
	case handle:
		if b.f08 {
			typ = "type(" + f.typ + ")"
		}
	case procedure:
		if !b.f08 {
			return []string{"external :: " + f.name}
		}
		return []string{"procedure(" + f.typ + ") :: " + f.name}
	}
	if b.f08 && f.intent != "" {
		typ += ", intent(" + strings.ToLower(f.intent) + ")"
	}
	lines := []string{typ + " :: " + f.name + shape}
	if f.kind == buffer {
		lines = append([]string{"!GCC$ attributes no_arg_check :: " + f.name}, lines...)
	}
	return lines
}

// body is the interface of a call's procedure. link is its name for the linker.
func (b *bind) body(c *fcall, link string) string {
	var names, lines []string
	what := "subroutine"
	if c.function() {
		what = "function"
	}
	for i := range c.params {
		names = append(names, c.params[i].name)
		lines = append(lines, b.declare(&c.params[i])...)
	}
	switch {
	case c.ierror() && b.f08:
		names, lines = append(names, "ierror"), append(lines, "integer, optional, intent(out) :: ierror")
	case c.ierror():
		names, lines = append(names, "ierror"), append(lines, "integer :: ierror")
	case c.result == "double":
		lines = append(lines, "double precision :: "+link)
	case c.function():
		lines = append(lines, "integer(8) :: "+link)
	}
	head := continued("    "+what+" "+link+"(", names, ")\n")
	if len(names) == 0 {
		head = "    " + what + " " + link + "()\n"
	}
	return head + "      import\n      implicit none\n      " + strings.Join(lines, "\n      ") + "\n    end " + what + "\n"
}

// continued joins words by commas in lines of Fortran's free form.
func continued(head string, words []string, tail string) string {
	var out strings.Builder
	out.WriteString(head)
	column := len(head)
	for i, w := range words {
		end := ", "
		if i == len(words)-1 {
			end = tail
		}
		if i > 0 && column+len(w)+len(end) > columns-1 {
			out.WriteString("&\n        ")
			column = 8
		}
		out.WriteString(w + end)
		column += len(w) + len(end)
	}
	return out.String()
}

// signature is what tells procedures of one name apart: the types, kinds and ranks of what is not optional.
func (c *fcall) signature() string {
	var s []string
	for i := range c.params {
		f := &c.params[i]
		t := strconv.Itoa(int(f.kind)) + f.shape
		if f.kind == handle {
			t += f.typ
		}
		s = append(s, t)
	}
	return strings.Join(s, " ")
}

// explicit are the calls whose form with large counts has a name of its own: procedures tell no
// procedures apart.
var explicit = map[string]bool{"MPI_Op_create_c": true, "MPI_Register_datarep_c": true}

// interfacesF08 are those of module mpi_f08: a name stands for the forms with and without large counts.
func interfacesF08(calls []fcall, prefix string) string {
	b := bind{f08: true, prefix: prefix}
	bodies, signatures, order := map[string]string{}, map[string]string{}, []string{}
	for i := range calls {
		c := &calls[i]
		if c.old {
			continue
		}
		name := c.name
		if c.large && !explicit[name] {
			name = strings.TrimSuffix(name, "_c")
		}
		link := strings.ToLower(prefix + c.link())
		if !c.large {
			link += "_f08"
		}
		if _, ok := bodies[name]; !ok {
			order = append(order, name)
			signatures[name] = c.signature()
		} else if signatures[name] == c.signature() {
			continue // MPI_COUNT_KIND is MPI_ADDRESS_KIND: the first form takes what this one does.
		}
		bodies[name] += b.body(c, link)
	}
	var out strings.Builder
	for _, name := range order {
		fmt.Fprintf(&out, "  interface %s%s\n%s  end interface\n", prefix, name, bodies[name])
	}
	return out.String()
}

// interfacesMPI are those of module mpi. The name is the procedure's.
func interfacesMPI(calls []fcall, prefix string) string {
	b := bind{prefix: prefix}
	var out strings.Builder
	for i := range calls {
		c := &calls[i]
		if c.large {
			continue
		}
		name := prefix + c.name
		fmt.Fprintf(&out, "  interface %s\n%s", name, b.body(c, name))
		for k := range c.params {
			if c.params[k].kind == pointer {
				text := b.body(c, name+"_cptr")
				from, to := "integer(8) :: "+c.params[k].name+"\n", "type(c_ptr) :: "+c.params[k].name+"\n"
				out.WriteString(strings.Replace(text, from, to, 1))
			}
		}
		out.WriteString("  end interface\n")
	}
	return out.String()
}

// fortranConstant is a constant that a Fortran program may have: its Fortran type, and its value.
func fortranConstant(c *constant) (typ, value string, ok bool) {
	value = c.value
	if n, err := strconv.ParseInt(value, 0, 64); err == nil {
		value = strconv.FormatInt(n, 10)
	}
	for _, prefix := range []string{"MPI_T_", "MPI_F_", "MPI_F08_"} {
		if strings.HasPrefix(c.name, prefix) {
			return "", "", false
		}
	}
	switch {
	case c.typ == "MPI_Offset":
		return "MPI_Offset", value, true
	case c.typ == "int" && strings.HasPrefix(c.name, "MPI_MAX_"): // Without the character that ends strings in C.
		n, _ := strconv.Atoi(value)
		return "int", strconv.Itoa(n - 1), true
	case c.typ == "int":
		return "int", value, true
	case isHandle(c.typ):
		return c.typ, value, true
	}
	return "", "", false
}

// numbers are the constants of Fortran alone.
var numbers = []constant{
	{"MPI_ADDRESS_KIND", "int", "8"},
	{"MPI_COUNT_KIND", "int", "8"},
	{"MPI_OFFSET_KIND", "int", "8"},
	{"MPI_INTEGER_KIND", "int", "4"},
	{"MPI_STATUS_SIZE", "int", "8"},
	{"MPI_SOURCE", "int", "1"},
	{"MPI_TAG", "int", "2"},
	{"MPI_ERROR", "int", "3"},
}

// flags say what the modules do: buffers are passed by their addresses alone.
var flags = []string{"MPI_SUBARRAYS_SUPPORTED", "MPI_ASYNC_PROTECTS_NONBLOCKING"}

// places are the constants that are recognised by their addresses, each in a common block.
var places = []struct{ name, typ, shape string }{
	{"MPI_BOTTOM", "integer", ""},
	{"MPI_IN_PLACE", "integer", ""},
	{"MPI_BUFFER_AUTOMATIC", "integer", ""},
	{"MPI_STATUS_IGNORE", "status", ""},
	{"MPI_STATUSES_IGNORE", "status", "1"},
	{"MPI_ERRCODES_IGNORE", "integer", "1"},
	{"MPI_UNWEIGHTED", "integer", "1"},
	{"MPI_WEIGHTS_EMPTY", "integer", "1"},
	{"MPI_ARGV_NULL", "character", "1"},
	{"MPI_ARGVS_NULL", "character", "1,1"},
}

// nullFunctions are functions for attributes that the library has.
var nullFunctions = map[string]string{
	"MPI_COMM_DUP_FN": "MPI_Comm_copy_attr_function", "MPI_COMM_NULL_COPY_FN": "MPI_Comm_copy_attr_function",
	"MPI_COMM_NULL_DELETE_FN": "MPI_Comm_delete_attr_function",
	"MPI_TYPE_DUP_FN":         "MPI_Type_copy_attr_function", "MPI_TYPE_NULL_COPY_FN": "MPI_Type_copy_attr_function",
	"MPI_TYPE_NULL_DELETE_FN": "MPI_Type_delete_attr_function",
	"MPI_WIN_DUP_FN":          "MPI_Win_copy_attr_function", "MPI_WIN_NULL_COPY_FN": "MPI_Win_copy_attr_function",
	"MPI_WIN_NULL_DELETE_FN": "MPI_Win_delete_attr_function",
	"MPI_CONVERSION_FN_NULL": "MPI_Datarep_conversion_function", "MPI_CONVERSION_FN_NULL_C": "MPI_Datarep_conversion_function_c",
	"MPI_DUP_FN": "", "MPI_NULL_COPY_FN": "", "MPI_NULL_DELETE_FN": "",
}

// constantsOf are the constants of a module.
func constantsOf(constants []constant, f08 bool) string {
	var b strings.Builder
	for _, c := range append(append([]constant{}, numbers...), constants...) {
		typ, value, ok := fortranConstant(&c)
		switch {
		case !ok:
		case isHandle(typ) && f08:
			fmt.Fprintf(&b, "  type(%s), parameter :: %s = %s(%s)\n", typ, c.name, typ, value)
		case typ == "MPI_Offset":
			fmt.Fprintf(&b, "  integer(MPI_OFFSET_KIND), parameter :: %s = %s\n", c.name, value)
		default:
			fmt.Fprintf(&b, "  integer, parameter :: %s = %s\n", c.name, value)
		}
	}
	for _, name := range flags {
		fmt.Fprintf(&b, "  logical, parameter :: %s = .false.\n", name)
	}
	for _, p := range places {
		typ, shape := p.typ, p.shape
		switch {
		case typ == "status" && f08:
			typ = "type(MPI_Status)"
		case typ == "status":
			typ, shape = "integer", strings.TrimSuffix("MPI_STATUS_SIZE,"+shape, ",")
		}
		if shape != "" {
			shape = "(" + shape + ")"
		}
		fmt.Fprintf(&b, "  %s :: %s%s\n  common /%s/ %s\n", typ, p.name, shape, common(p.name), p.name)
	}
	return b.String()
}

// common is the name of a constant's common block.
func common(name string) string { return "mpif_" + strings.TrimPrefix(strings.ToLower(name), "mpi_") }

// extras are interfaces of procedures that C does not have.
func extras(prefix, suffix string, f08 bool) string {
	ierror := "integer :: ierror"
	if f08 {
		ierror = "integer, optional, intent(out) :: ierror"
	}
	var b strings.Builder
	link := strings.ToLower(prefix) + "mpi_"
	fmt.Fprintf(&b, "  interface %sMPI_F_sync_reg\n    subroutine %sf_sync_reg%s(buf)\n      implicit none\n"+
		"      !GCC$ attributes no_arg_check :: buf\n      type(*), dimension(*) :: buf\n    end subroutine\n  end interface\n",
		prefix, link, suffix)
	for _, way := range [][3]string{{"f2f08", "f_status", "f08_status"}, {"f082f", "f08_status", "f_status"}} {
		fmt.Fprintf(&b, "  interface %sMPI_Status_%s\n    subroutine %[3]sstatus_%[2]s(%[4]s, %[5]s, ierror)\n      import\n      implicit none\n"+
			"      type(MPI_Status) :: f08_status\n      integer :: f_status(8)\n      %[6]s\n    end subroutine\n  end interface\n",
			prefix, way[0], link, way[1], way[2], ierror)
	}
	b.WriteString("  interface " + prefix + "MPI_Sizeof\n")
	for _, s := range sizes {
		if s.only != "" {
			b.WriteString("#ifdef " + s.only + "\n")
		}
		fmt.Fprintf(&b, "    subroutine %ssizeof_%s(x, size, ierror)\n      implicit none\n      %s :: x(..)\n"+
			"      integer :: size\n      %s\n    end subroutine\n", link, s.name, s.typ, ierror)
		if s.only != "" {
			b.WriteString("#endif\n")
		}
	}
	b.WriteString("  end interface\n")
	return b.String()
}

// sizes are the types that MPI_Sizeof takes.
var sizes = []struct{ name, typ, only string }{
	{"character", "character(len=*)", ""},
	{"logical1", "logical(1)", ""},
	{"logical2", "logical(2)", ""},
	{"logical4", "logical(4)", ""},
	{"logical8", "logical(8)", ""},
	{"integer1", "integer(1)", ""},
	{"integer2", "integer(2)", ""},
	{"integer4", "integer(4)", ""},
	{"integer8", "integer(8)", ""},
	{"integer16", "integer(16)", ""},
	{"real4", "real(4)", ""},
	{"real8", "real(8)", ""},
	{"real10", "real(10)", "__x86_64__"},
	{"real16", "real(16)", ""},
	{"complex8", "complex(4)", ""},
	{"complex16", "complex(8)", ""},
	{"complex20", "complex(10)", "__x86_64__"},
	{"complex32", "complex(16)", ""},
}

func moduleF08(calls []fcall, constants []constant) string {
	var b strings.Builder
	b.WriteString("! Module mpi_f08 of MPI 5.0.\n" + fortranNotice + "module mpi_f08\n" +
		"  use, intrinsic :: iso_c_binding, only: c_ptr\n  use mpi_abi_types\n  implicit none\n  private :: c_ptr\n")
	b.WriteString(constantsOf(constants, true) + fortranCallbacks)
	for _, c := range constants {
		if t := nullFunctions[c.name]; t != "" {
			fmt.Fprintf(&b, "  procedure(%s) :: %s\n", t, c.name)
		}
	}
	for _, prefix := range []string{"", "P"} {
		b.WriteString(interfacesF08(calls, prefix) + extras(prefix, "_f08", true))
	}
	b.WriteString("end module\n")
	return b.String()
}

func moduleMPI(calls []fcall, constants []constant) string {
	var b strings.Builder
	b.WriteString("! Module mpi of MPI 5.0.\n" + fortranNotice + "module mpi\n" +
		"  use, intrinsic :: iso_c_binding, only: c_ptr\n  use mpi_abi_types\n  implicit none\n  private :: c_ptr\n")
	b.WriteString(constantsOf(constants, false))
	for _, c := range constants {
		if _, ok := nullFunctions[c.name]; ok {
			fmt.Fprintf(&b, "  external :: %s\n", c.name)
		}
	}
	for _, prefix := range []string{"", "P"} {
		b.WriteString(interfacesMPI(calls, prefix) + extras(prefix, "", false))
	}
	b.WriteString("end module\n")
	return b.String()
}

func moduleTypes() string {
	var b strings.Builder
	b.WriteString("! The types of both modules of MPI 5.0.\n" + fortranNotice + "module mpi_abi_types\n" +
		"  use, intrinsic :: iso_c_binding, only: c_int\n  implicit none\n  private :: c_int\n" + fortranTypes)
	for _, h := range fortranHandles() {
		fmt.Fprintf(&b, "  type, bind(C) :: MPI_%s\n    integer(c_int) :: MPI_VAL\n  end type\n", h)
	}
	for _, op := range [][2]string{{"==", "eq"}, {"/=", "ne"}} {
		fmt.Fprintf(&b, "  interface operator(%s)\n", op[0])
		for _, h := range fortranHandles() {
			fmt.Fprintf(&b, "    pure function mpif_%s_%s(a, b)\n      import\n      implicit none\n      type(MPI_%s), intent(in) :: a, b\n"+
				"      logical :: mpif_%[1]s_%[2]s\n    end function\n", strings.ToLower(h), op[1], h)
		}
		b.WriteString("  end interface\n")
	}
	b.WriteString("end module\n")
	return b.String()
}

// fortranHandles are the types of handles that Fortran has.
func fortranHandles() []string {
	var all []string
	for _, h := range handles {
		if !strings.HasPrefix(h, "T_") {
			all = append(all, h)
		}
	}
	return all
}

// mpifHeader is mpif.h. Its lines are the same in fixed and in free form.
func mpifHeader(calls []fcall, constants []constant) string {
	var b strings.Builder
	b.WriteString("! MPI 5.0 for Fortran programs that have no modules, in fixed or free form.\n" +
		"! Code generated by mpigen from calls.txt and constants.txt.\n! DO NOT EDIT.\n")
	line := func(format string, args ...any) { fmt.Fprintf(&b, "      "+format+"\n", args...) }
	for _, c := range append(append([]constant{}, numbers...), constants...) {
		typ, value, ok := fortranConstant(&c)
		if !ok {
			continue
		}
		if typ == "MPI_Offset" {
			line("integer(kind=MPI_OFFSET_KIND) %s", c.name)
		} else {
			line("integer %s", c.name)
		}
		line("parameter (%s=%s)", c.name, value)
	}
	for _, name := range flags {
		line("logical %s", name)
		line("parameter (%s=.false.)", name)
	}
	for _, p := range places {
		typ, shape := p.typ, p.shape
		if typ == "status" {
			typ, shape = "integer", strings.TrimSuffix("MPI_STATUS_SIZE,"+shape, ",")
		}
		if shape != "" {
			shape = "(" + shape + ")"
		}
		line("%s %s%s", typ, p.name, shape)
		line("common /%s/ %s", common(p.name), p.name)
	}
	for _, c := range constants {
		if _, ok := nullFunctions[c.name]; ok && c.name != "MPI_CONVERSION_FN_NULL_C" {
			line("external %s", c.name)
		}
	}
	for _, prefix := range []string{"", "P"} {
		for i := range calls {
			switch c := &calls[i]; {
			case !c.function():
			case c.result == "double":
				line("double precision %s%s", prefix, strings.ToUpper(c.name))
				line("external %s%s", prefix, strings.ToUpper(c.name))
			default:
				line("integer(kind=MPI_ADDRESS_KIND) %s%s", prefix, strings.ToUpper(c.name))
				line("external %s%s", prefix, strings.ToUpper(c.name))
			}
		}
	}
	return b.String()
}

// fortranNames are the names that libmpifort_abi exports, which are those that a program calls.
func fortranNames(calls []fcall, constants []constant) string {
	var all []string
	add := func(names ...string) { all = append(all, names...) }
	for _, p := range []string{"", "p"} {
		for i := range calls {
			c := &calls[i]
			add(p + c.link() + "_")
			if !c.large && !c.old {
				add(p + c.link() + "_f08_")
			}
			for k := range c.params {
				if c.params[k].kind == pointer && !c.large {
					add(p + c.link() + "_cptr_")
				}
			}
		}
		add(p+"mpi_f_sync_reg_", p+"mpi_f_sync_reg_f08_", p+"mpi_status_f2f08_", p+"mpi_status_f082f_")
		for _, s := range sizes {
			add(p + "mpi_sizeof_" + s.name + "_")
		}
	}
	for _, c := range constants {
		if _, ok := nullFunctions[c.name]; ok {
			add(strings.ToLower(c.name) + "_")
		}
	}
	for _, p := range places {
		add(common(p.name) + "_")
	}
	for _, h := range fortranHandles() {
		add("mpif_"+strings.ToLower(h)+"_eq_", "mpif_"+strings.ToLower(h)+"_ne_")
	}
	slices.Sort(all)
	return strings.Join(all, "\n") + "\n"
}
