package view

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// ErrLayout is the error of an import whose exporter has elements of another layout. It is found by
// errors.Is; errors.As finds the [LayoutError].
//
// Experimental: it may change in any release.
var ErrLayout = errors.New("view: another layout")

// LayoutError says how the layouts of an exporter and an importer differ. It is also [ErrLayout].
//
// Experimental: it may change in any release.
type LayoutError struct {
	Ours   string // the layout's text in this program
	Theirs string // the exporter's, maybe cut off; "" if the export has none
	Field  string // the path here of the first field that differs; "" if it is not a field
	Why    string
}

// Error returns the whole of it in one line.
func (e *LayoutError) Error() string {
	return fmt.Sprintf("%v: %s (there %q, here %q)", ErrLayout, e.Why, e.Theirs, e.Ours)
}

// Is reports whether target is [ErrLayout].
func (e *LayoutError) Is(target error) bool { return target == ErrLayout }

// The label of an export, see the package's documentation.
const (
	labelBegin  = "view\x01"
	labelHeader = len(labelBegin) + 2 + 8 + 8
	labelSize   = 256
)

// label returns the label of an export of n elements.
func (l *layout) label(n int) []byte {
	b := append(make([]byte, 0, labelSize), labelBegin...)
	b = binary.LittleEndian.AppendUint16(b, uint16(min(len(l.Text), math.MaxUint16)))
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b = binary.LittleEndian.AppendUint64(b, l.Fingerprint())
	return append(b, l.Text[:min(len(l.Text), labelSize-labelHeader)]...)
}

// elements returns the number of elements that an export of size bytes has, by its label, or why
// it has none of this layout.
func (l *layout) elements(label []byte, size int) (int, error) {
	rest, ok := strings.CutPrefix(string(label), labelBegin)
	if !ok || len(label) < labelHeader {
		return 0, &LayoutError{Ours: l.Text, Why: "the export has no layout: its exporter did not make it by package view, or a daemon on the way is of an older version"}
	}
	theirs := rest[labelHeader-len(labelBegin):]
	// What follows from the own layout is compared with what came, which may be anything.
	n := binary.LittleEndian.Uint64(label[len(labelBegin)+2:])
	switch {
	case n == 0 || n > uint64(size/l.Size):
		n = 0
	case string(label) == string(l.label(int(n))):
		return int(n), nil
	}
	e := &LayoutError{Ours: l.Text, Theirs: theirs}
	if e.Field, e.Why = l.difference(theirs); e.Why == "" {
		e.Why = "the layouts differ behind what a label has room for"
		if n == 0 {
			e.Why = "the number of elements that the exporter says does not fit into its buffer"
		}
	}
	return 0, e
}

// Check compares T's layout with the [Layout.Text] of another program, which may be any string. It
// is for protocols that carry several layouts, or one that a label has no room for. Errors: a
// [*TypeError]; [ErrLayout], with a [*LayoutError] that says what differs.
//
// Experimental: it may change in any release.
func Check[T any](text string) error {
	l, err := layoutOf[T]()
	if err != nil || text == l.Text {
		return err
	}
	e := &LayoutError{Ours: l.Text, Theirs: text}
	if e.Field, e.Why = l.difference(text); e.Why == "" {
		e.Why = "the exporter's text is cut off"
	}
	return e
}

// difference returns the first field whose description differs in another text, and how. why is ""
// if none does, as far as the other text goes.
func (l *layout) difference(theirs string) (path, why string) {
	ours, k := l.Text, 0
	for k < len(ours) && k < len(theirs) && ours[k] == theirs[k] {
		k++
	}
	switch {
	case k == len(theirs) && (k == len(ours) || k == labelSize-labelHeader):
		return "", ""
	case k < len("le:"):
		return "", fmt.Sprintf("the exporter's byte order or format is %q", clip(theirs, 0))
	}
	at := func(i int) byte { // which is not in a name
		if i < len(ours) {
			return ours[i]
		}
		return 0
	}
	there := byte(0)
	if k < len(theirs) {
		there = theirs[k]
	}
	switch {
	case at(k) == '}' && there == ';':
		return l.fieldAt(k - 1).path, fmt.Sprintf("the exporter has a field %q more, behind field %s", clip(theirs, k+1), l.fieldAt(k-1).path)
	case at(k) == ';' && there == '}':
		f := l.fieldAt(k + 1)
		return f.path, fmt.Sprintf("the exporter has no field %s", f.path)
	}
	f := l.fieldAt(k)
	if f.end == 0 {
		return "", fmt.Sprintf("the exporter's elements are %q", clip(theirs, len("le:")))
	}
	return f.path, fmt.Sprintf("field %s is %q there and %q here",
		f.path, clip(theirs, f.start), ours[f.start:f.end])
}

// fieldAt returns the innermost field whose description has byte k of the text, or the delimiter
// behind it; the zero field if none has.
func (l *layout) fieldAt(k int) (found field) {
	for _, f := range l.fields {
		if f.start <= k && k <= f.end && (found.end == 0 || f.end-f.start < found.end-found.start) {
			found = f
		}
	}
	return found
}

// clip returns the description of the field that begins at byte i of a text, of which nothing is
// known.
func clip(text string, i int) string {
	text = text[min(i, len(text)):]
	depth := 0
	for j := range len(text) {
		switch text[j] {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth < 0 || depth == 0 && text[j] == ';' {
			return text[:j]
		}
	}
	return text
}
