package main

import (
	"fmt"
	"slices"
	"strings"
)

// mpichOwn are calls whose functions are written by hand: attributes have a value and the language that has
// set it, and the integers of a datatype's contents have meanings that its combiner gives.
var mpichOwn = []string{
	"MPI_Comm_create_keyval", "MPI_Type_create_keyval", "MPI_Win_create_keyval", "MPI_Keyval_create",
	"MPI_Comm_free_keyval", "MPI_Type_free_keyval", "MPI_Win_free_keyval", "MPI_Keyval_free",
	"MPI_Comm_set_attr", "MPI_Type_set_attr", "MPI_Win_set_attr", "MPI_Attr_put",
	"MPI_Comm_get_attr", "MPI_Type_get_attr", "MPI_Win_get_attr", "MPI_Attr_get",
	"MPI_Type_get_contents", "MPI_Type_get_contents_c",
}

// mpichAsked are calls that functions which are written by hand make.
var mpichAsked = []string{
	"MPI_Type_get_envelope_c", "MPI_Comm_test_inter", "MPI_Comm_remote_size", "MPI_Comm_size", "MPI_Comm_rank",
	"MPI_Topo_test", "MPI_Cartdim_get", "MPI_Graph_neighbors_count", "MPI_Dist_graph_neighbors_count",
	"MPI_Comm_call_errhandler",
}

// mpichInts says how integers are converted, by the parameter's name.
var mpichInts = map[string]string{
	"dest": "rank", "source": "rank", "root": "rank", "target_rank": "rank", "rank": "rank",
	"rank_source": "rank", "rank_dest": "rank", "ranks1": "rank", "ranks2": "rank",
	"tag": "tag", "sendtag": "tag", "recvtag": "tag",
	"comm_keyval": "keyval", "type_keyval": "keyval", "win_keyval": "keyval", "keyval": "keyval",
	"errorcode": "code", "errorclass": "code", "error": "code", "array_of_errcodes": "code",
	"amode": "mode", "assert": "assert", "whence": "whence", "required": "thread", "provided": "thread",
	"split_type": "split", "lock_type": "lock", "order": "order", "typeclass": "typeclass",
	"combiner": "combiner", "array_of_distribs": "distribution", "array_of_dargs": "dargument",
	"verbosity": "verbosity", "bind": "bind", "scope": "scope", "var_class": "variable_class",
	"cb_safety": "safety", "ordering": "source_order",
}

// mpichIntsOf says the same of parameters of certain calls.
var mpichIntsOf = map[string]string{
	"MPI_Abort errorcode":                       "", // the status with which the job ends
	"MPI_Comm_compare result":                   "comparison",
	"MPI_Group_compare result":                  "comparison",
	"MPI_Topo_test status":                      "topology",
	"MPI_File_set_view disp":                    "displacement",
	"MPI_Comm_rank rank":                        "", // a result, which is no special rank
	"MPI_Group_rank rank":                       "",
	"MPI_Cart_rank rank":                        "",
	"MPI_Comm_spawn array_of_errcodes":          "",
	"MPI_Comm_spawn_multiple array_of_errcodes": "",
}

// mpichBuffers are parameters that may be MPI_IN_PLACE.
var mpichBuffers = []string{
	"buf", "buffer", "sendbuf", "recvbuf", "inbuf", "outbuf", "inoutbuf", "origin_addr", "result_addr", "compare_addr",
}

// mpichCounts are the numbers of items of arrays, in C, by the array's name. "" is the first parameter.
var mpichCounts = map[string]string{
	"array_of_requests": "", "array_of_statuses": "", "array_of_types": "count", "array_of_info": "count",
	"array_of_distribs": "ndims", "array_of_dargs": "ndims", "ranks1": "n", "ranks2": "n",
	"sendtypes": "peers.to", "recvtypes": "peers.from",
}

// mpichStrings are strings that are shorter in MPICH: the standard's length, and MPICH's.
var mpichStrings = map[string][2]int{
	"MPI_Get_processor_name name": {256, 128},
	"MPI_Open_port port_name":     {1024, 256},
	"MPI_Lookup_name port_name":   {1024, 256},
}

// mpichParam is how a parameter is converted.
type mpichParam struct {
	declared string // in the prototype
	words    string // how many words of memory the standard's values take; "" is none
	in       string // the argument for Go. %s is where that memory is.
	out      string // the statement after the call. %s is the same. "" is none.
	before   string // the statement before the arguments
}

// mpichInt is the name of the conversion of an integer.
func mpichInt(c *call, p param) string {
	name, _ := strings.CutSuffix(c.name, "_c")
	if kind, ok := mpichIntsOf[name+" "+p.name]; ok {
		return kind
	}
	return mpichInts[p.name]
}

// isMPICHHandle reports whether a type is a handle that is an int in MPICH.
func isMPICHHandle(typ string) bool {
	for _, h := range mpichHandles {
		if typ == "MPI_"+h.name {
			return true
		}
	}
	return false
}

// baseType is the type of what a parameter is, points to, or is an array of.
func baseType(text string) string {
	t, _, _ := strings.Cut(strings.TrimPrefix(text, "const "), " ")
	return strings.TrimRight(t, "*")
}

func convertMPICH(c *call, p param) (mpichParam, error) {
	typ := baseType(p.text)
	kind := strings.TrimPrefix(typ, "MPI_")
	array := strings.Contains(p.text, "[") || p.name == "array_of_statuses"
	pointer := strings.Contains(p.text, "*") && !array
	constant := strings.HasPrefix(p.text, "const ")
	own := mpichParam{declared: mpichDeclared(p.text)}
	count := func() (string, error) {
		n, ok := mpichCounts[p.name]
		if !ok {
			return "", fmt.Errorf("%s: nothing says how many %s are", c.name, p.name)
		}
		if n == "" {
			n = c.params[0].name
		}
		return n, nil
	}
	switch {
	case typ == "MPI_Status" && array:
		n, err := count()
		own.words = "STATUS_WORDS * items(" + n + ")"
		own.in = "statuses_in(" + p.name + ", " + n + ", %s)"
		own.out = "statuses_out(" + p.name + ", " + n + ", %s)"
		return own, err
	case typ == "MPI_Status":
		own.words, own.in = "STATUS_WORDS", "status_in("+p.name+", %s)"
		if !constant {
			own.out = "status_out(" + p.name + ", %s)"
		}
		return own, nil
	case typ == "MPI_Request" || typ == "MPI_Datatype" || typ == "MPI_Info" || isMPICHHandle(typ):
		switch {
		case array && c.name == "MPI_T_event_get_info": // Events have no datatypes until they have an index.
			own.in = "ADDRESS(" + p.name + ")"
			return own, nil
		case array:
			n, err := count()
			own.words = "items(" + n + ")"
			own.in = kind + "_array_in(" + p.name + ", " + n + ", %s)"
			if !constant && typ == "MPI_Request" {
				own.out = kind + "_array_out(" + p.name + ", " + n + ", %s)"
			}
			if strings.HasPrefix(n, "peers.") {
				own.before = "const struct peers peers = peers_of(comm, " + map[bool]string{true: "1", false: "0"}[strings.Contains(c.name, "eighbor")] + ");"
			}
			return own, err
		case pointer:
			own.words, own.in = "1", kind+"_at_in("+p.name+", %s)"
			own.out = kind + "_at_out(" + p.name + ", %s)"
			return own, nil
		}
		own.in = kind + "_in(" + p.name + ")"
		return own, nil
	case typ == "MPI_File" && pointer:
		own.words, own.in, own.out = "1", "File_at_in("+p.name+", %s)", "File_at_out("+p.name+", %s)"
		return own, nil
	case typ == "MPI_File":
		own.in = "File_in(" + p.name + ")"
		return own, nil
	case strings.HasSuffix(typ, "_function") || strings.HasSuffix(typ, "_function_c"):
		own.in = mpichCallback(c, p, typ)
		if own.in == "" {
			return own, fmt.Errorf("%s: nothing says how %s is called", c.name, typ)
		}
		return own, nil
	}
	if limits, ok := mpichStrings[c.name+" "+p.name]; ok && !constant {
		own.words = fmt.Sprint(limits[0] / 8)
		own.in = "string_in(" + p.name + ", %s)"
		own.out = fmt.Sprintf("string_out(%s, %%s, %d)", p.name, limits[1])
		if p := c.params[len(c.params)-1]; p.name == "resultlen" {
			own.out = fmt.Sprintf("resultlen_out(string_out(%s, %%s, %d), resultlen)", c.params[0].name, limits[1])
		}
		return own, nil
	}
	if strings.HasSuffix(p.name, "weights") {
		own.in = "weights_in(" + p.name + ")"
		return own, nil
	}
	if typ == "MPI_T_pvar_handle" && !pointer {
		own.in = "all_handles_in(" + p.name + ")"
		return own, nil
	}
	if conversion := mpichInt(c, p); conversion != "" {
		switch {
		case array && !constant: // Group_translate_ranks: ranks2
			n, err := count()
			own.in, own.out = "ADDRESS("+p.name+")", fmt.Sprintf("EACH(%s, %s, %s_out)", p.name, n, conversion)
			return own, err
		case array:
			n, err := count()
			own.words = "items(" + n + ")"
			own.in = fmt.Sprintf("ints_in(%s, %s, %%s, %s_in)", p.name, n, conversion)
			return own, err
		case pointer && p.name == "comm_keyval": // never: these calls are written by hand
			return own, fmt.Errorf("%s is not written by hand", c.name)
		case pointer:
			own.in, own.out = "ADDRESS("+p.name+")", fmt.Sprintf("RESULT(%s, %s_out)", p.name, conversion)
			return own, nil
		}
		own.in = "INTEGER(" + conversion + "_in(" + p.name + "))"
		return own, nil
	}
	own.in = p.value()
	if slices.Contains(mpichBuffers, p.name) && strings.Contains(p.text, "void *") {
		own.in = "buffer_in(" + p.name + ")"
	}
	return own, nil
}

// mpichDeclared is a parameter with MPICH's types.
func mpichDeclared(text string) string {
	for _, h := range mpichHandles {
		text = strings.ReplaceAll(text+" ", "MPI_"+h.name+" ", "int ")
		text = strings.TrimSuffix(text, " ")
	}
	for typ, to := range map[string]string{"MPI_Status": "struct mpich_status", "MPI_File": "void *"} {
		before, after, found := strings.Cut(text, typ+" ")
		if found {
			text = before + to + " " + after
		}
	}
	text = strings.ReplaceAll(text, "void * ", "void *")
	if i := strings.Index(text, "_function"); i >= 0 {
		_, name, _ := strings.Cut(text, " ")
		return "void (*" + strings.TrimLeft(name, "*") + ")(void)"
	}
	for _, t := range []string{
		"MPI_T_enum", "MPI_T_cvar_handle", "MPI_T_pvar_handle", "MPI_T_pvar_session", "MPI_T_event_registration",
		"MPI_T_event_instance",
	} {
		if before, after, found := strings.Cut(text, t+" "); found {
			text = strings.ReplaceAll(before+"void *"+after, "void * ", "void *")
		}
	}
	text = strings.ReplaceAll(text, "MPI_T_cb_safety", "int")
	return strings.ReplaceAll(text, "MPI_T_source_order", "int")
}

// mpichCallback is the address for Go of a function of the program.
func mpichCallback(c *call, p param, typ string) string {
	shape := map[string]string{
		"MPI_User_function": "op", "MPI_User_function_c": "op_c",
		"MPI_Comm_errhandler_function": "comm_errhandler", "MPI_Win_errhandler_function": "win_errhandler",
		"MPI_File_errhandler_function": "file_errhandler", "MPI_Session_errhandler_function": "session_errhandler",
		"MPI_Grequest_query_function": "grequest_query", "MPI_Grequest_free_function": "grequest_free",
		"MPI_Grequest_cancel_function": "grequest_cancel", "MPI_Datarep_extent_function": "datarep_extent",
		"MPI_Datarep_conversion_function":   "datarep_conversion",
		"MPI_Datarep_conversion_function_c": "datarep_conversion",
	}[typ]
	switch {
	case strings.HasPrefix(c.name, "MPI_T_"):
		return "ADDRESS(" + p.name + ")"
	case shape == "":
		return ""
	}
	return "function_in(call_" + shape + ", " + p.name + ")"
}

// mpichFunctions are the functions of the calls that Go executes.
func mpichFunctions(calls []call) (string, error) {
	var b strings.Builder
	b.WriteString(mpichNotice + "#include \"convert.h\"\n" + tableConstant(calls))
	for _, c := range calls {
		if c.alone || slices.Contains(mpichOwn, c.name) {
			continue
		}
		if err := mpichFunction(&b, &c); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func mpichFunction(b *strings.Builder, c *call) error {
	declared := make([]string, len(c.params))
	args := make([]string, len(c.params))
	var after, words, before []string
	for i, p := range c.params {
		m, err := convertMPICH(c, p)
		if err != nil {
			return err
		}
		where := "m"
		if len(words) > 0 {
			where = "m + " + strings.Join(words, " + ")
		}
		declared[i], args[i] = m.declared, strings.ReplaceAll(m.in, "%s", where)
		if m.out != "" {
			after = append(after, strings.ReplaceAll(m.out, "%s", where))
		}
		if m.before != "" && !slices.Contains(before, m.before) {
			before = append(before, m.before)
		}
		if m.words != "" {
			words = append(words, m.words)
		}
	}
	if len(declared) == 0 {
		declared = []string{"void"}
	}
	b.WriteString("\n" + wrap("API "+c.result+" P"+c.name+"(", declared, ") {\n"))
	for _, s := range before {
		b.WriteString("    " + s + "\n")
	}
	if len(words) > 0 {
		b.WriteString(wrap("    uint64_t *const m = room(", []string{strings.Join(words, " + ")}, ");\n"))
		b.WriteString("    if (!m) {\n        return NO_MEMORY;\n    }\n")
	}
	passed := "NULL, 0"
	if len(args) > 0 {
		b.WriteString(wrap("    const uint64_t args[] = {", args, "};\n"))
		passed = fmt.Sprintf("args, %d", len(args))
	}
	run := fmt.Sprintf("code_out(mpi_call(%d, \"%s\", %s))", c.number, c.name, passed)
	if len(after) == 0 && len(words) == 0 {
		fmt.Fprintf(b, "    return %s;\n}\n", run)
	} else {
		fmt.Fprintf(b, "    const int code = %s;\n", run)
		for _, s := range after {
			if strings.HasPrefix(s, "RESULT(") || strings.HasPrefix(s, "EACH(") {
				fmt.Fprintf(b, "    if (code == 0) {\n        %s;\n    }\n", s)
				continue
			}
			fmt.Fprintf(b, "    %s;\n", s)
		}
		if len(words) > 0 {
			b.WriteString("    free(m);\n")
		}
		b.WriteString("    return code;\n}\n")
	}
	fmt.Fprintf(b, "ALIAS(%s);\n", strings.TrimPrefix(c.name, "MPI_"))
	return nil
}
