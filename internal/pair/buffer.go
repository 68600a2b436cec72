package pair

import (
	"errors"

	"github.com/vmmc-go/vmmc"
)

// Buffer is memory that is exported. The zero value has none.
type Buffer struct {
	*vmmc.Export
	mem *vmmc.Memory
}

// NewBuffer exports n bytes that init has filled, with an id of the library's.
func NewBuffer(
	p *vmmc.Process, n int, init func([]byte), opts ...vmmc.ExportOption,
) (Buffer, error) {
	return NewBufferBy(p, n, func(mem *vmmc.Memory) (*vmmc.Export, error) {
		if init != nil {
			init(mem.Bytes())
		}
		return Export(func(id uint32) (*vmmc.Export, error) {
			return p.Export(id, mem.Bytes(), opts...)
		})
	})
}

// NewBufferBy allocates n bytes, which export exports.
func NewBufferBy(
	p *vmmc.Process, n int, export func(*vmmc.Memory) (*vmmc.Export, error),
) (Buffer, error) {
	mem, err := p.Alloc(n)
	if err != nil {
		return Buffer{}, err
	}
	e, err := export(mem)
	if err != nil {
		return Buffer{}, errors.Join(err, mem.Close())
	}
	return Buffer{e, mem}, nil
}

// Close ends the export, and gives back the memory. After an error call it again.
func (b Buffer) Close() error {
	if b.Export == nil {
		return nil
	}
	if err := b.Export.Close(); err != nil {
		return err
	}
	return b.mem.Close()
}
