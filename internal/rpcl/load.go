// Package rpcl reads the RPC language, RFC 5531 and RFC 4506, as rpcgen takes it: with the
// directives of the C preprocessor, its % lines, and C's ways to name types.
//
// [Load] reads a file, checks it, and resolves names and constants.
package rpcl

import "maps"

// Options say how a file is read.
type Options struct {
	// Where files are looked for that are not beside the one that includes them.
	Dirs    []string
	Defines map[string]string // macros
	Undef   []string          // macros that are not to be defined
	Extern  []string          // types that other code of the Go package defines
	Open    Open
}

// predefined are the macros that rpcgen defines for one or the other of the files that it writes.
// The Go file is all of them in one.
var predefined = map[string]string{"RPC_HDR": "1", "RPC_XDR": "1", "RPC_SVC": "1", "RPC_CLNT": "1"}

// Load reads a file. Errors have the type *Error if they have a place in a file.
func Load(path string, o Options) (f *File, err error) {
	defer catch(&err)
	src, err := o.Open(path)
	if err != nil {
		return nil, err
	}
	p := o.parse(path, path, src)
	c := newChecker(p)
	c.headers(o)
	for _, name := range o.Extern {
		if c.types[name] == nil {
			c.types[name] = &Def{Form: External, Name: name, Imported: true}
		}
	}
	c.check()
	return p.file, nil
}

// parse reads the definitions of a file and of those that it includes.
func (o Options) parse(name, path string, src []byte) *parser {
	defines := maps.Clone(predefined)
	for _, name := range o.Undef {
		delete(defines, name)
	}
	maps.Copy(defines, o.Defines)
	p := &parser{newExpressions(newPreprocessor(o.Open, o.Dirs, defines)), &File{Name: name}}
	p.push(newSource(name, path, string(src)))
	p.definitions()
	return p
}

// headers reads the .x files of the headers that the C would include, as far as they are there:
// rpcgen makes NAME.h of NAME.x. What they define is known and belongs to them.
func (c *checker) headers(o Options) {
	seen := map[string]bool{c.p.file.Name: true}
	for left := c.p.headers; len(left) > 0; left = left[1:] {
		name, ok := fileOf(left[0].name)
		if !ok {
			continue
		}
		path, src, err := c.p.find(name, left[0].from)
		if err != nil || seen[path] {
			continue
		}
		if seen[path] = true; len(seen) > maxInclude {
			return
		}
		p := o.parse(path, path, src)
		c.importFrom(p)
		left = append(left, p.headers...)
	}
}
