// Package view gives remote memory types: a buffer is a number of elements of a Go type, which the
// exporter has as a slice and importers load and store by their index.
//
//	type Price struct {
//		_     structs.HostLayout
//		Cents int64
//		Item  uint32
//		Seq   uint32
//	}
//
//	local, err := view.Export[Price](p, 1, 100)                 // the exporter
//	remote, err := view.Import[Price](ctx, p, node, pid, 1)      // an importer
//	err = remote.Store(ctx, 7, Price{Cents: 995, Item: 3, Seq: 1})
//
// # Types
//
// An element is an integer or a floating-point number of a fixed size, an array or a struct of
// these. Other types are refused with the path of the field, see [TypeError]: those with pointers;
// int, uint and uintptr, whose size differs between machines; bool, because a peer may store what
// is neither true nor false; complex numbers; types of packages sync, sync/atomic and time; and
// structs with padding that no field names, which the compiler leaves unset, so that old contents
// of the stack would be sent. Name padding: _ [4]byte.
//
// The size of an element is a multiple of four bytes, the word of remote memory, or it is one or
// two bytes. Elements of one and two bytes are written without their neighbours in the word; a
// message of these has no last word, so the order in which its bytes appear is not defined.
//
// # Layouts
//
// An export has the [Layout] of its elements in its label (see [vmmc.WithLabel]), and an import
// whose program has another one is refused with a [LayoutError], which names the first field that
// differs. A layout is the byte order and the names and types of fields, without names of types and
// packages: programs that define their types apart, also in other languages, agree if their texts
// do.
//
// Layout.Text is the byte order ("le" or "be"), a colon, and the type:
//
//	type   = "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "f32" | "f64"
//	       | "[" length "]" type
//	       | "{" field { ";" field } "}"
//	field  = type " " name
//	       | "_" bytes        // padding: a field whose name is _
//
// The label is the four letters "view", a byte of value 1, the length of the text (16 bits), the
// number of elements and the [Layout.Fingerprint] (64 bits each, all little-endian), and then the
// text, cut off where the label is full. Nothing vouches for a label: it protects from mistakes,
// not from an exporter that lies.
//
// # Order and concurrency
//
// All that package vmmc promises of messages and gets holds. [Remote.Store] and [Remote.Put] are
// one message each, whose last word is stored last: an exporter that has seen the last word of an
// element change ([Local.LastWord]) finds the rest of it in place. [Remote.Load] and [Remote.Get]
// read the last word first. Elements of one and two bytes are the exception: no order among their
// bytes is promised to writes and reads. Nothing but a word of four bytes is stored or loaded at
// once. For an element of eight bytes that others change meanwhile use [Add], [Swap] and
// [CompareAndSwap], and a [Cell] at the exporter.
//
// All methods may be called concurrently. [Local.Slice] is plain memory: what orders the exporter's
// accesses to it with those of importers is a word that is waited for, or what the program takes
// for that.
//
// # Lifetime
//
// A [Remote] is an import and lives as long; calls fail then as those of [vmmc.Import] do. After
// [vmmc.Import.Rejoin] make a new one by [RemoteOf], which compares the layouts again. A [Local] is
// an export; its slice must not be touched after [Local.Close], and waits for its words and cells
// must have returned before. Loads and stores allocate nothing once the view is made.
//
// Experimental: this package may change in any release.
package view
