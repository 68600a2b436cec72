// Package xdr writes and reads External Data Representation, RFC 4506: the bytes of SunRPC, NFS and
// their like.
//
// Types know their own representation, as [Marshaler] and [Unmarshaler]; vrpcgen writes their
// methods from a .x file, and nothing here uses reflection. A method calls those of its parts and
// does not look after errors: an [Encoder] or a [Decoder] keeps the first one and does nothing from
// then on.
//
//	func (p *Point) EncodeXDR(e *xdr.Encoder) { e.Int32(p.X); e.Int32(p.Y) }
//	func (p *Point) DecodeXDR(d *xdr.Decoder) { p.X, p.Y = d.Int32(), d.Int32() }
//
// A Decoder trusts nothing. A length is held against what is declared and against what is left of
// the input before anything is allocated for it, padding must be zero, a bool 0 or 1, and values
// within values end at [MaxDepth]. What is decoded takes memory in proportion to the input that it
// was decoded from; the proportion is that of a type's size in Go to its least size in XDR.
//
// Nothing is allocated where the memory is given: see [Encoder.Reset], [Encoder.ResetFixed], and
// [Memory] for what a Decoder does with the slices and pointers that a value already has.
package xdr
