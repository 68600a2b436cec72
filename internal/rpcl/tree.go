package rpcl

import "math/big"

// Kind is what a type specifier says.
type Kind uint8

// The kinds. Named is resolved to a Def or to what a name of the C library stands for.
const (
	Void Kind = iota
	Int32
	Uint32
	Int64
	Uint64
	Int16
	Uint16
	Int8
	Uint8
	Float32
	Float64
	Quadruple
	Bool
	String
	Opaque
	Named
)

// Shape is how many values of its type a declaration has.
type Shape uint8

// The shapes: one, a fixed number, up to a number, none or one.
const (
	Plain Shape = iota
	Fixed
	Variable
	Optional
)

// Var is a declaration: a name and its type. The members of structs, the arms of unions, the
// arguments and results of procedures and what typedefs stand for are such.
type Var struct {
	At    Position
	Name  string // "" for arguments without one
	Kind  Kind
	Type  string // of Named: its name in the file
	Shape Shape
	Size  *Expr // nil: no limit

	inner *Def // defined here, until it has a name

	// The rest is for Check to fill in.

	Def *Def   // of Named, unless Alias is there
	As  *Var   // what Named stands for if it is no type of its own
	N   uint32 // elements or bytes: that many if Fixed, at most if Variable
}

// Const is a constant.
type Const struct {
	At       Position
	Name     string
	Value    *Expr
	Text     *string  // instead of Value
	Num      *big.Int // what Check finds
	Imported bool
}

// Form is what defines a type.
type Form uint8

// The forms. Other code of the same Go package defines an External type.
const (
	Typedef Form = iota
	Enum
	Struct
	Union
	External
)

// Def is the definition of a type.
type Def struct {
	At       Position
	Form     Form
	Name     string
	Imported bool     // from the .x file of a header, whose Go is made from that file
	Of       *Var     // of a Typedef
	Values   []*Const // of an Enum
	Members  []*Var   // of a Struct
	Switch   *Var     // of a Union
	Arms     []*Arm   // of a Union

	// The rest is for Check to fill in.

	text      string // of what defines it, for comparison
	Least     int    // bytes that a value takes at least
	Recursive bool   // values may lie within values of the type, other than by List
	List      bool   // a Struct whose last member leads to the next of the same
}

// Arm is one arm of a union.
type Arm struct {
	At    Position
	Cases []*Expr
	// The cases that the discriminant can be, by Check; of a Uint64 those of the same bits.
	Numbers []int64
	Names   []string // their names, "" for numbers
	Default bool
	Var     *Var // Void: nothing
}

// Program is a program of procedures.
type Program struct {
	At       Position
	Name     string
	Value    *Expr
	Number   uint32
	Versions []*Version
	Imported bool

	text string // for comparison
}

// Version is one version of a program.
type Version struct {
	At         Position
	Name       string
	Value      *Expr
	Number     uint32
	Procedures []*Procedure
}

// Procedure is one of a version.
type Procedure struct {
	At     Position
	Name   string
	Value  *Expr
	Number uint32
	Args   []*Var // none for void
	Result *Var   // Void: none
}

// File is all that a file defines, in its order.
type File struct {
	Name     string
	Consts   []*Const // without those of enums
	Types    []*Def
	Programs []*Program
}
