package vmmc_test

import (
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// Each option of an export beside each other one, itself included. Those that contradict each other
// are refused before anything is exported or sealed.
func TestPairsOfExportOptions(t *testing.T) {
	p := open(t, start(t))
	options := []struct {
		name string
		opt  vmmc.ExportOption
	}{
		{"ReadOnly", vmmc.ReadOnly()},
		{"WriteOnly", vmmc.WriteOnly()},
		{"ReadWrite", vmmc.ReadWrite()},
		{"WithHandler", vmmc.WithHandler(func(vmmc.Notification) {})},
		{"Locked", vmmc.Locked()},
		{"Unmapped", vmmc.Unmapped()},
		{"Redirectable", vmmc.Redirectable()},
		{"ManySenders", vmmc.ManySenders()},
		{"SharePages", vmmc.SharePages()},
		{"GlobalSpace", vmmc.GlobalSpace()},
		{"Permit", vmmc.Permit(vmmc.Permission{})},
		{"WithLabel", vmmc.WithLabel([]byte("label"))},
	}
	contradictions := map[[2]string]bool{
		{"ReadOnly", "WriteOnly"}: true, {"ReadOnly", "ReadWrite"}: true, {"WriteOnly", "ReadWrite"}: true,
		{"ReadOnly", "WithHandler"}: true, {"ReadOnly", "Redirectable"}: true,
		{"WithHandler", "WithHandler"}: true, {"Redirectable", "Redirectable"}: true,
		{"WithLabel", "WithLabel"}: true,
	}
	for _, a := range options {
		contradictions[[2]string{"ManySenders", a.name}] = a.name != "Redirectable"
	}
	for _, a := range options {
		for _, b := range options {
			t.Run(a.name+" and "+b.name, func(t *testing.T) {
				want := contradictions[[2]string{a.name, b.name}] || contradictions[[2]string{b.name, a.name}]
				mem, err := p.Alloc(vmmc.PageSize())
				if err != nil {
					t.Fatal(err)
				}
				e, err := p.Export(1, mem.Bytes(), a.opt, b.opt)
				if refused := errors.Is(err, vmmc.ErrBadArg); refused != want || err != nil && !refused {
					t.Fatalf("%v; refused is %v, want %v", err, refused, want)
				}
				if want { // nothing was exported, and the memory may be exported with any rights
					if e, err = p.Export(1, mem.Bytes()); err != nil {
						t.Fatal(err)
					}
					if err := e.Close(); err != nil {
						t.Error(err)
					}
					if e, err = p.Export(1, mem.Bytes(), vmmc.WriteOnly()); err != nil {
						t.Fatal(err)
					}
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
				if err := mem.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for name, opts := range map[string][]vmmc.ExportOption{
		"ManySenders alone": {vmmc.ManySenders()},
		"nil":               {nil},
		"three rights":      {vmmc.ReadOnly(), vmmc.WriteOnly(), vmmc.ReadOnly()},
	} {
		if _, err := p.Export(2, alloc(t, p, size), opts...); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each option of a binding beside each other one.
func TestPairsOfBindOptions(t *testing.T) {
	s := exported(t, "mapped")
	mem := alloc(t, s.a, size)
	options := []struct {
		name string
		opt  vmmc.BindOption
	}{
		{"FlagRange", vmmc.FlagRange(0, 4)},
		{"FlagWords", vmmc.FlagWords(8)},
		{"NotifyUpdates", vmmc.NotifyUpdates()},
		{"AliasPages", vmmc.AliasPages()},
		{"CompareOnly", vmmc.CompareOnly()},
		{"WithContents", vmmc.WithContents()},
	}
	sends := map[string]bool{"NotifyUpdates": true, "CompareOnly": true, "WithContents": true}
	for _, a := range options {
		for _, b := range options {
			t.Run(a.name+" and "+b.name, func(t *testing.T) {
				want := a.name == "AliasPages" && sends[b.name] || b.name == "AliasPages" && sends[a.name]
				bound, err := s.im.Bind(mem, 0, a.opt, b.opt)
				if refused := errors.Is(err, vmmc.ErrBadArg); refused != want || err != nil && !refused {
					t.Fatalf("%v; refused is %v, want %v", err, refused, want)
				}
				if bound != nil {
					if err := bound.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	if _, err := s.im.Bind(mem, 0, nil); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("nil: %v", err)
	}
}
